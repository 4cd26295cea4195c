r"""A whole training step of several configs, side by side in one process.

    python tools/benchmarks/training_step.py
    python tools/benchmarks/training_step.py --threads 1 \
        configs/smooth_ap/conv4_smooth-ap_omniglot.py \
        configs/stable_ap/conv4_stable-ap_omniglot.py --batch-size 112 --image-size 28 28
    python tools/benchmarks/training_step.py --threads 1 \
        --plan tools/research/papers/stable_ap/table3.yaml --set small

All models, detectors or retrievers, get the same batch of random images in turn. A step is split
as in stable AP's table 3, in CPU time of all threads or seconds of the GPU; what a loss has
computed of the backward pass in its forward pass counts as loss.

--plan takes the rows of a plan of run_seeds.py in place of configs, with the batch and crop that
they train on, on a GPU where there is one.
"""

import copy
import statistics
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.structures import InstanceData
from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.pictures.tables import console_table
from mmrank.runners.config import parsed_options
from mmrank.runners.models import build_model
from timing import median_ratio

FOCAL = 'configs/stable_ap/retinanet_r18_fpn_focal_bccd.py'
OURS = 'configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py'
PARTS = ('network', 'loss', 'backward', 'optimiser')
#: Methods of mmdet's heads that turn outputs into losses.
LOSS_METHODS = ('loss_by_feat', 'loss_and_target')


def make_images(batch_size, size, channels=3):
    g = torch.Generator().manual_seed(0)
    shape = (channels, *size)
    return [torch.randint(0, 256, shape, generator=g).to(torch.uint8) for _ in range(batch_size)]


def make_batch(batch_size, size, num_classes):
    """Images with twelve boxes each, for a detector."""
    from mmdet.structures import DetDataSample

    g = torch.Generator().manual_seed(0)
    height, width = size
    sides = ('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape')
    samples = []
    for _ in range(batch_size):
        corner = torch.rand(12, 2, generator=g) * 0.8
        side = 0.05 + 0.15 * torch.rand(12, 2, generator=g)
        scale = torch.tensor([width, height, width, height])
        boxes = torch.cat([corner, corner + side], 1) * scale
        labels = torch.randint(0, num_classes, (12,), generator=g)
        sample = DetDataSample(
            gt_instances=InstanceData(bboxes=boxes, labels=labels),
            metainfo=dict.fromkeys(sides, size) | dict(scale_factor=(1.0, 1.0)),
        )
        samples.append(sample)
    return dict(inputs=make_images(batch_size, size), data_samples=samples)


def batch_for(config, model, args):
    """A batch that the model of a config can be trained on; a retriever's has classes of four."""
    size = tuple(args.image_size)
    if 'bbox_head' in config.model or 'roi_head' in config.model:
        head = config.model.get('bbox_head') or config.model.roi_head.bbox_head
        head = head[0] if isinstance(head, list) else head
        return make_batch(args.batch_size, size, head.num_classes)
    from mmpretrain.structures import DataSample

    samples = [DataSample(metainfo=dict(sample_idx=i)) for i in range(args.batch_size)]
    for number, sample in enumerate(samples):
        sample.set_gt_label(number // 4)
    first = next(m for m in model.modules() if hasattr(m, 'in_channels'))
    images = make_images(args.batch_size, size, first.in_channels)
    return dict(inputs=torch.stack(images), data_samples=samples)


def build(path, device, options=()):
    """The model of a config in training mode and its optimiser."""
    config = Config.fromfile(path)
    config.merge_from_dict(dict(options))
    torch.manual_seed(0)
    if 'backbone' in config.model:
        config.model.backbone.init_cfg = None
    model = build_model(config)
    model.init_weights()
    model.to(device).train()
    return config, model, build_optim_wrapper(model, config.optim_wrapper)


class PartClock:
    """Splits the steps of a model into :data:`PARTS`."""

    def __init__(self, model, wrapper, batch):
        self.model = model
        self.wrapper = wrapper
        self.batch = batch
        self.on_gpu = next(model.parameters()).is_cuda
        self.seconds = defaultdict(list)
        self._loss = 0.0
        self._depth = 0
        methods = [
            (module, name)
            for module in model.modules()
            for name in LOSS_METHODS
            if callable(getattr(module, name, None))
        ]
        # Other heads have no layers of their own: their loss is the loss.
        for module, name in methods or [(model.head, 'loss')]:
            setattr(module, name, self._timed(getattr(module, name)))

    def _now(self):
        if not self.on_gpu:
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def _timed(self, method):
        def call(*args, **kwargs):
            start = self._now()
            self._depth += 1
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._loss += self._now() - start

        return call

    def step(self):
        """One update, its parts added to ``seconds``."""
        self._loss = 0.0
        batch = self.model.data_preprocessor(copy.deepcopy(self.batch), True)
        times = [self._now()]
        losses = self.model(**batch, mode='loss')
        times.append(self._now())
        total, _ = self.model.parse_losses(losses)
        self.wrapper.backward(self.wrapper.scale_loss(total))
        times.append(self._now())
        self.wrapper.step()
        self.wrapper.zero_grad()
        times.append(self._now())
        whole, backward, optimiser = (end - start for start, end in pairwise(times))
        values = (whole - self._loss, self._loss, backward, optimiser)
        for name, value in zip(PARTS, values):
            self.seconds[name].append(value)


def show_parts(clocks, args, title):
    """Run the steps in turn and print medians of the parts."""
    for turn in range(args.repeats + 1):
        for clock in clocks.values():
            clock.step()
            if not turn:
                clock.seconds.clear()
    rows = []
    first = None
    for path, clock in clocks.items():
        sums = [sum(parts) for parts in zip(*clock.seconds.values())]
        first = first or sums
        parts = [1e3 * statistics.median(clock.seconds[x]) for x in PARTS]
        figures = [*parts, sum(parts), 100 * parts[1] / sum(parts)]
        rows.append([path, *(f'{x:.1f}' for x in figures), f'{median_ratio(sums, first):.3f}'])
    header = ('config', *(f'{x}, ms' for x in PARTS), 'sum', 'loss, %', 'x first')
    Console().print(console_table(header, rows, title=title))


def main():
    parser = tool_parser(__doc__, batch_size=4, repeats=15, threads=2, device='cpu')
    size = dict(type=int, nargs=2, metavar=('HEIGHT', 'WIDTH'))
    parser.add_argument('--image-size', default=(256, 320), **size)
    parser.add_argument('--plan', help='plan of retrieval losses, YAML')
    parser.add_argument('--set', default='', help='one of the sets of the plan')
    parser.add_argument(
        'configs',
        nargs='*',
        default=[FOCAL, OURS],
        help='configs to time; the first is the reference (default: the '
        'small RetinaNet on focal loss and on stable AP)',
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # Building a detector logs every parameter.
    MMLogger.get_instance('mmengine', log_level='WARNING')

    rows = {path: (path, {}) for path in args.configs}
    if args.plan:
        # The reader of plans is research's.
        sys.path.insert(0, str(Path(__file__).parents[1] / 'research'))
        from plans.config_plan import read_plan

        methods = read_plan(args.plan, args.set).methods
        rows = {x.name: (x.config, parsed_options(x.cfg_options)) for x in methods}
        # The sizes of the first decide for all.
        path, _ = next(iter(rows.values()))
        loader = Config.fromfile(path).train_dataloader
        args.batch_size = loader.batch_size
        crop = next(x.crop_size for x in loader.dataset.pipeline if 'crop_size' in x)
        args.image_size = [crop, crop]
        args.device = get_device()
    clocks = {}
    batch = None
    for name, (path, options) in rows.items():
        config, model, wrapper = build(path, args.device, options=options)
        if batch is None:
            batch = batch_for(config, model, args)
        clocks[name] = PartClock(model, wrapper, batch)
    title = (
        f'one training step, {args.batch_size} images of '
        f'{args.image_size[0]} x {args.image_size[1]}, {args.device}, '
        f'{args.threads} threads, {args.repeats} repeats in turn'
    )
    show_parts(clocks, args, title)


if __name__ == '__main__':
    main()
