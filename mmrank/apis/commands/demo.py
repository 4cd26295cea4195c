"""Train a detector on graded AP-Loss and on focal loss, and compare them.

    mmrank demo

generates a small data set of textured shapes, trains the same RetinaNet from scratch with either
loss and one seed, and writes a table (Markdown, CSV), precision-recall curves and drawn detections.
It takes a few minutes on two CPU cores. Run it again after an interruption to continue; --fresh
restarts. One seed shows that everything works, not which loss is better.
"""

import argparse
import contextlib
import dataclasses
import json
import sys
import time
import warnings
from pathlib import Path

from rich.console import Console
from rich.progress import track

from mmrank.apis.coco.box_evaluation import evaluate_boxes, load_ground_truth
from mmrank.apis.coco.detections import draw_detections
from mmrank.apis.coco.pr_curves import PRCurves, plot_pr_curves
from mmrank.apis.coco.tables import comparison_rows, rich_table, write_tables
from mmrank.apis.common.command_line import parse_at_least, tool_parser
from mmrank.apis.common.live_progress import LiveProgressHook
from mmrank.apis.entry_point import config_folder
from mmrank.apis.synthetic.shapes_coco import ShapesSpec, write_shapes_coco
from mmrank.errors import UserError, show_user_errors
from mmrank.interruption import AGAIN

CONFIGS = {
    'graded-ap': 'ap_loss/retinanet_r18_fpn_graded-ap_demo.py',
    'focal': 'stable_ap/retinanet_r18_fpn_focal_demo.py',
}
LOSSES = {'graded AP-Loss': 'graded-ap', 'focal': 'focal'}
QUICK = ShapesSpec(num_train=40, num_val=8, num_test=0)


def parse_args() -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('--work-dir', type=Path, help='where results go (default: work_dirs/demo)')
    parser.add_argument(
        '--data-root', type=Path, help='folder of the data set (default: data/shapes_coco)'
    )
    parser.add_argument('--epochs', type=int, help="of each training (default: the configs')")
    parser.add_argument('--seed', type=int, default=0, help='training seed (default: 0)')
    parser.add_argument(
        '--fresh', action='store_true', help='restart training in spite of checkpoints or results'
    )
    parser.add_argument(
        '--quick', action='store_true', help='a few iterations; default folders end in _quick'
    )
    args = parse_at_least(parser, epochs=1)
    suffix = '_quick' if args.quick else ''
    args.work_dir = args.work_dir or Path(f'work_dirs/demo{suffix}')
    args.data_root = args.data_root or Path(f'data/shapes_coco{suffix}')
    if args.epochs is None and args.quick:
        args.epochs = 1
    return args


def prepare_data(root: Path, spec: ShapesSpec, console: Console) -> None:
    """Generate the data set unless it is there already."""
    stamp = root / 'shapes_spec.json'
    wanted = json.dumps(dataclasses.asdict(spec), indent=1)
    if stamp.is_file() and stamp.read_text('utf-8') == wanted:
        console.print(f'Data set: {shown(root)} is reused.', soft_wrap=True)
        return
    if root.exists() and not stamp.is_file() and any(root.iterdir()):
        raise UserError(
            f'{root} exists but holds no data set of this demo. Fix: '
            'pass another --data-root, or move it away.'
        )
    stamp.unlink(missing_ok=True)
    start = time.monotonic()
    total = sum(spec.split_sizes().values())
    title, silent = 'Data set: painting images', not console.is_terminal
    steps = iter(track(range(total), title, console=console, disable=silent))
    write_shapes_coco(root, spec, lambda *_: next(steps))
    next(steps, None)  # ends the bar
    stamp.write_text(wanted, encoding='utf-8')
    console.print(
        f'Data set: {total} images written to {shown(root)} in {time.monotonic() - start:.1f} s.',
        soft_wrap=True,
    )


def load_config(slug: str, args: argparse.Namespace):
    """A loss's config with this run's folders, seed and length."""
    from mmengine.config import Config
    from mmengine.device import get_device

    cfg = Config.fromfile(str(config_folder() / CONFIGS[slug]))
    cfg.work_dir = str(args.work_dir / slug)
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].dataset.data_root = str(args.data_root)
    ann_file = str(args.data_root / 'annotations' / 'val.json')
    cfg.val_evaluator.ann_file = ann_file
    cfg.val_evaluator.outfile_prefix = str(args.work_dir / slug / 'val')
    cfg.randomness.seed = args.seed
    # On CUDA some operations (cumsum) have no deterministic form.
    cfg.randomness.deterministic = get_device() == 'cpu'
    # By one name, both runs would log into the first one's folder.
    cfg.visualizer.name = slug
    if args.epochs is not None:
        old, new = cfg.train_cfg.max_epochs, args.epochs
        cfg.train_cfg.update(max_epochs=new, val_interval=new)
        for scheduler in cfg.param_scheduler:
            for key in ('T_max', 'end'):
                if scheduler.get('by_epoch') and scheduler.get(key) == old:
                    scheduler[key] = new
    return cfg


def train(name: str, slug: str, args: argparse.Namespace, console) -> Path:
    """Train and evaluate one loss; the file of its predictions on val."""
    from mmengine.runner import Runner

    from mmrank.datasets.checks.coco_check import check_config

    cfg = load_config(slug, args)
    folder = Path(cfg.work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    predictions = folder / 'val.bbox.json'
    stamp = folder / 'demo_config.txt'
    spec = (args.data_root / 'shapes_spec.json').read_text('utf-8')
    wanted = f'{cfg.pretty_text}\n{spec}'
    same = stamp.is_file() and stamp.read_text('utf-8') == wanted
    if args.fresh or not same:
        others = [*folder.glob('*.pth'), *folder.glob('last_checkpoint')]
        if others and not stamp.is_file():
            raise UserError(f'{others[0]} is not of this demo. Fix: pass another --work-dir.')
        for old in others:
            old.unlink(missing_ok=True)
        predictions.unlink(missing_ok=True)
        stamp.write_text(wanted, encoding='utf-8')
    elif predictions.is_file():
        console.print(f'{name}: already trained; --fresh restarts it.')
        return predictions
    cfg.resume = True
    check_config(cfg, splits=('train', 'val'))
    progress = LiveProgressHook(name, console)
    with (
        (folder / 'console.log').open('a', encoding='utf-8') as log,
        contextlib.redirect_stdout(log),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter('ignore')
        runner = Runner.from_cfg(cfg)
        runner.register_hook(progress)
        try:
            runner.train()
        finally:
            progress.stop()
    return predictions


def shown(path: Path) -> str:
    """A path relative to the working directory where it lies below."""
    return str(path.resolve()).removeprefix(f'{Path.cwd()}/')


def report(files: dict[str, Path], args: argparse.Namespace, console) -> None:
    """Print and write the tables and pictures."""
    truth = load_ground_truth(args.data_root / 'annotations' / 'val.json')
    models = {n: evaluate_boxes(truth, f) for n, f in files.items()}
    title = f'Shapes val split, {len(truth.imgs)} images, seed {args.seed}'
    header, rows = comparison_rows(models)
    console.print(rich_table(header, rows, title))
    markdown, table = write_tables(header, rows, args.work_dir, title)
    curves = plot_pr_curves(
        {n: PRCurves.of(e) for n, e in models.items()}, args.work_dir / 'pr_curves.png'
    )
    drawn = draw_detections(
        models, args.data_root / 'val', args.work_dir / 'detections.png', num_images=5
    )
    console.print('Written:')
    for path in (markdown, table, curves, drawn):
        console.print(f'  {shown(path)}', highlight=False, soft_wrap=True)


@show_user_errors(on_interrupt=AGAIN)
def main() -> None:
    args = parse_args()
    # The real stdout: mmengine's own is redirected to a file in training.
    console = Console(file=sys.stdout)
    start = time.monotonic()
    try:
        import mmdet  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'the demo trains a detector and needs mmdet: {error}. '
            'Fix: run `make demo`, which installs the reference stack.'
        ) from error
    prepare_data(args.data_root, QUICK if args.quick else ShapesSpec(), console)
    files = {name: train(name, slug, args, console) for name, slug in LOSSES.items()}
    report(files, args, console)
    console.print(f'Done in {time.monotonic() - start:.0f} s.')
