r"""A whole training step of two configs, side by side in one process.

Both detectors get the same batch of random images and boxes and take turns,
so the ratio holds on a busy machine; single times do not. A step is forward,
losses, backward and the optimiser.

    python tools/benchmarks/training_step.py
    python tools/benchmarks/training_step.py --batch-size 8 --device cuda \
        configs/stable_ap/atss_r50_fpn_focal_1x_coco.py \
        configs/stable_ap/atss_r50_fpn_stable-ap_1x_coco.py \
        --image-size 800 1333
"""

import argparse
import copy

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from mmengine.structures import InstanceData
from rich.console import Console
from rich.table import Table

from mmrank.registry import MODELS
from mmrank.studies.common.timing import in_turn

FOCAL = 'configs/stable_ap/retinanet_r18_fpn_focal_bccd.py'
OURS = 'configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py'


def make_batch(batch_size, size, num_classes, boxes_per_image):
    """Random images with random boxes, as a data loader would return them."""
    from mmdet.structures import DetDataSample

    g = torch.Generator().manual_seed(0)
    height, width = size
    inputs, samples = [], []
    for _ in range(batch_size):
        image = torch.randint(0, 256, (3, height, width), generator=g)
        inputs.append(image.to(torch.uint8))
        corner = torch.rand(boxes_per_image, 2, generator=g) * 0.8
        side = 0.05 + 0.15 * torch.rand(boxes_per_image, 2, generator=g)
        scale = torch.tensor([width, height, width, height])
        boxes = torch.cat([corner, corner + side], 1) * scale
        labels = torch.randint(0, num_classes, (boxes_per_image,), generator=g)
        sample = DetDataSample(
            gt_instances=InstanceData(bboxes=boxes, labels=labels),
            metainfo=dict(
                img_shape=size,
                ori_shape=size,
                pad_shape=size,
                batch_input_shape=size,
                scale_factor=(1.0, 1.0),
            ),
        )
        samples.append(sample)
    return dict(inputs=inputs, data_samples=samples)


def num_classes_of(config):
    head = config.model.get('bbox_head') or config.model.roi_head.bbox_head
    return (head[0] if isinstance(head, list) else head).num_classes


def build(path, device):
    """The model of a config in training mode and its optimiser."""
    config = Config.fromfile(path)
    init_default_scope(config.get('default_scope', 'mmdet'))
    torch.manual_seed(0)
    model_config = copy.deepcopy(config.model)
    model_config.backbone.init_cfg = None
    model = MODELS.build(model_config)
    model.init_weights()
    model.to(device).train()
    return config, model, build_optim_wrapper(model, config.optim_wrapper)


def step(model, wrapper, batch):
    """One update of the weights."""
    # A training step may move boxes in place: it takes a copy.
    model.train_step(copy.deepcopy(batch), wrapper)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        'configs',
        nargs='*',
        default=[FOCAL, OURS],
        help='configs to time; the first is the reference (default: the '
        'small RetinaNet on focal loss and on stable AP)',
    )
    parser.add_argument('--batch-size', type=int, default=4)
    parser.add_argument(
        '--image-size',
        type=int,
        nargs=2,
        default=(256, 320),
        metavar=('HEIGHT', 'WIDTH'),
    )
    parser.add_argument('--boxes', type=int, default=12, help='per image')
    parser.add_argument('--repeats', type=int, default=15)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # Building a detector logs every parameter.
    MMLogger.get_instance('mmengine', log_level='WARNING')

    steps, batch = {}, None
    for path in args.configs:
        config, model, wrapper = build(path, args.device)
        if batch is None:
            batch = make_batch(
                args.batch_size,
                tuple(args.image_size),
                num_classes_of(config),
                args.boxes,
            )
        steps[path] = (step, (model, wrapper, batch))
    results = in_turn(steps, args.repeats)
    table = Table(
        'config',
        'median ms',
        'x first',
        title=f'one training step, {args.batch_size} images of '
        f'{args.image_size[0]} x {args.image_size[1]}, {args.device}, '
        f'{args.threads} threads, {args.repeats} repeats in turn',
    )
    for path, (seconds, ratio) in results.items():
        table.add_row(path, f'{1e3 * seconds:.0f}', f'{ratio:.3f}')
    Console().print(table)


if __name__ == '__main__':
    main()
