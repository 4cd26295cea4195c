"""Train a detector on graded AP-Loss and on focal loss, and compare them.

    mmrank demo

It generates a small data set in data/, trains the same ATSS detector from ImageNet weights with
either loss, and writes a table, precision-recall curves and drawn detections to work_dirs/demo, in
a few minutes on a CPU. The same command goes on after an interruption. One seed shows that
everything works, not which loss is better.
"""

import dataclasses
import json
import signal
import time
from pathlib import Path

from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco
from mmrank.errors import UserError
from mmrank.evaluation.box_evaluation import evaluate_boxes, load_ground_truth
from mmrank.experiments.plan import Comparison, Method
from mmrank.experiments.runs import count_cores, work_off
from mmrank.files import write_atomically
from mmrank.imports import required_package
from mmrank.pictures.detections import draw_detections
from mmrank.pictures.pr_curves import PRCurves, plot_pr_curves, show_comparison
from mmrank.runners.config import config_folder
from mmrank.runners.folder_lock import lock_folder

LOSSES = {
    'graded-ap': 'ap_loss/atss_lite0_fpn_graded-ap_demo.py',
    'focal': 'ap_loss/atss_lite0_fpn_focal_demo.py',
}
SPEC = ShapesSpec(
    num_train=200,
    num_val=60,
    num_test=0,
    width=192,
    height=128,
    mean_objects=5,
    min_size=20,
    max_size=96,
)
QUICK = dataclasses.replace(SPEC, num_train=40, num_val=8)


def prepare_data(root: Path, spec: ShapesSpec, console: Console) -> None:
    """Generate the data set unless it is there already."""
    stamp = root / 'shapes_spec.json'
    wanted = json.dumps(dataclasses.asdict(spec), indent=1)
    if stamp.is_file() and stamp.read_text('utf-8') == wanted:
        console.print(f'Data set: {root} is reused.')
        return
    if root.exists() and not stamp.is_file() and any(root.iterdir()):
        raise UserError(f'{root} holds no data set of this demo. Fix: move it away')
    stamp.unlink(missing_ok=True)
    write_shapes_coco(root, spec, console)
    write_atomically(wanted.encode(), stamp)


def make_plan(data: Path, out: Path, quick: bool) -> Comparison:
    """The plan of both trainings, which are tested on the validation images."""
    # What is tested are the validation images: a validation on the way is for nothing.
    options = dict.fromkeys(('val_cfg', 'val_dataloader', 'val_evaluator'))
    options |= {f'{split}_dataloader.dataset.data_root': str(data) for split in ('train', 'test')}
    options['test_evaluator.ann_file'] = f'{data}/annotations/val.json'
    if quick:
        options['train_cfg.max_epochs'] = 1
    methods = []
    for name, config in LOSSES.items():
        own = {**options, 'test_evaluator.outfile_prefix': out / name}
        texts = {key: str(value) for key, value in own.items()}
        methods.append(Method(name, str(config_folder() / config), texts))
    return Comparison(out, tuple(methods), seeds=(0,), metrics=('coco/bbox_mAP',))


def report(data: Path, out: Path, console: Console) -> None:
    """Print and write the tables and pictures."""
    truth = load_ground_truth(data / 'annotations' / 'val.json')
    models = {
        name: evaluate_boxes(truth, out / f'{name}.bbox.json') for name, config in LOSSES.items()
    }
    title = f'Shapes val split, {len(truth.imgs)} images, seed 0'
    curves = {name: PRCurves.of(x) for name, x in models.items()}
    written = [
        *show_comparison(models, out / 'results', title, console),
        plot_pr_curves(curves, out / 'pr_curves.png'),
        draw_detections(models, data / 'val', out / 'detections.png', num_images=5),
    ]
    console.print('Written:', *written, sep='\n  ', highlight=False, soft_wrap=True)


def main() -> int:
    quick = False, 'one epoch on 40 images; the folders end in _quick'
    args = tool_parser(__doc__, quick=quick).parse_args()
    # A termination is treated as an interrupt: the trainings end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    start = time.monotonic()
    with required_package('mmdet', 'the demo', 'make demo, which installs the reference stack'):
        import mmdet  # noqa: F401
    from mmrank.models.backbones.imagenet_weights import check_package

    check_package()
    suffix = '_quick' if args.quick else ''
    data = Path(f'data/shapes_demo{suffix}')
    out = Path(f'work_dirs/demo{suffix}')
    with lock_folder(out):
        prepare_data(data, QUICK if args.quick else SPEC, console)
        plan = make_plan(data, out, args.quick)
        jobs = min(len(LOSSES), count_cores())
        outcomes = work_off(console, plan.runs(), plan.metrics, jobs=jobs)
        if any(outcome.error for outcome in outcomes):
            return 1
        report(data, out, console)
    console.print(f'Done in {time.monotonic() - start:.0f} s.')
    return 0
