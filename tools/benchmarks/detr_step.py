r"""A training step of mmdet's DINO on a ranking loss compared with focal loss.

    python tools/benchmarks/detr_step.py
    python tools/benchmarks/detr_step.py --queries 900 --classes 1203 \
        --loss RankSortLoss --image-size 512 512

Two DINO R-50 of the same weights get the same random batch in turn; CPU time counts. ``loss`` is
matching and losses of all layers, forward and backward to the outputs of the head; ``step`` is the
whole step; ``exchanged`` is the step on focal loss after the difference of the two ``loss`` parts,
which is known more exactly. Larger images leave the loss as it is: ratios are upper bounds.
"""

import copy
import sys
from pathlib import Path

import torch
from mmengine.hub import get_config
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from rich.console import Console
from rich.table import Table
from torch import Tensor
from training_step import make_batch, step

from mmrank.registry import MODELS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.timing import cpu_in_turn

STOCK = 'mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py'


def build(loss, queries, classes, denoising):
    """A DINO in training mode and its optimiser, on focal loss with None."""
    config = get_config(STOCK)
    init_default_scope('mmdet')
    model = config.model
    model.backbone.init_cfg = None
    model.num_queries = queries
    model.bbox_head.num_classes = classes
    # Pairs of a positive and a negative query.
    model.dn_cfg.group_cfg.num_dn_queries = denoising // 2
    if loss is not None:
        head = model.bbox_head
        head.type = 'mmrank.ListwiseHead'
        head.head_type = 'mmdet.DINOHead'
        head.loss_cls = dict(type=f'mmrank.{loss}')
    torch.manual_seed(0)
    detector = MODELS.build(model)
    detector.init_weights()
    detector.train()
    return detector, build_optim_wrapper(detector, config.optim_wrapper)


def head_arguments(detector, batch):
    """Arguments of the head's losses, for one batch."""
    noted = []
    head = detector.bbox_head
    losses = head.loss_by_feat

    def note(*args):
        noted.extend(args)
        return losses(*args)

    head.loss_by_feat = note
    data = detector.data_preprocessor(copy.deepcopy(batch), True)
    torch.manual_seed(0)  # of the noise
    detector(**data, mode='loss')
    del head.loss_by_feat
    return noted


def loss_part(head, args):
    """Losses of a batch and their gradient by the outputs of the head."""
    leaves = [x.detach().requires_grad_() if isinstance(x, Tensor) else x for x in args]
    losses = head.loss_by_feat(*leaves)
    sum(losses.values()).backward()


def compare(args, queries, classes):
    """Median seconds and ratios of ``loss`` and ``step``, by their names."""
    batch = make_batch(args.batch_size, tuple(args.image_size), classes, args.boxes)
    parts, steps = {}, {}
    reference = None
    for name, loss in (('focal', None), (args.loss, args.loss)):
        detector, wrapper = build(loss, queries, classes, args.denoising)
        if reference is None:
            reference = detector.state_dict()
            outputs = head_arguments(detector, batch)
        detector.load_state_dict(reference, strict=False)
        parts[name] = (loss_part, (detector.bbox_head, outputs))
        steps[name] = (step, (detector, wrapper, batch))
    found = {'loss': cpu_in_turn(parts, args.loss_repeats)}
    if args.repeats:
        found['step'] = cpu_in_turn(steps, args.repeats)
        found['exchanged'] = exchanged(found['loss'], found['step'], args.loss)
    return found


def exchanged(loss, step, name):
    """Seconds and ratio of focal's step with the loss part of another loss."""
    focal = step['focal'][0]
    other = focal + loss[name][0] - loss['focal'][0]
    return {'focal': (focal, 1.0), name: (other, other / focal)}


def main():
    parser = tool_parser(
        __doc__,
        loss='StableAPLoss',
        queries=[300, 900],
        classes=[80, 1203],
        denoising=(200, 'denoising queries'),
        batch_size=2,
        boxes=(8, 'per image'),
        repeats=(2, 'turns of the step; 0 leaves it out'),
        loss_repeats=9,
        threads=1,
    )
    size = dict(type=int, nargs=2, metavar=('HEIGHT', 'WIDTH'))
    parser.add_argument('--image-size', default=(256, 256), **size)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # Building a detector logs every parameter, frozen ones as warnings.
    MMLogger.get_instance('mmengine', log_level='ERROR')

    table = Table(
        *('queries', 'classes', 'part', 'focal ms', f'{args.loss} ms'),
        'ratio',
        caption=f'DINO R-50, {args.batch_size} images of {args.image_size[0]} '
        f'x {args.image_size[1]} with {args.boxes} boxes each, {args.denoising} denoising '
        f'queries, threads: {args.threads}, CPU time',
    )
    for queries in args.queries:
        for classes in args.classes:
            for part, times in compare(args, queries, classes).items():
                row = (
                    *(str(queries), str(classes), part),
                    *(f'{1e3 * times[x][0]:.0f}' for x in ('focal', args.loss)),
                    f'{times[args.loss][1]:.3f}',
                )
                table.add_row(*row)
                # The table comes minutes later.
                print(*row, file=sys.stderr, flush=True)
    Console().print(table)


if __name__ == '__main__':
    main()
