"""Train a config, evaluate its last checkpoint, write the metrics as JSON.

    python -m mmrank.cli.train_and_test CONFIG --work-dir work_dirs/x --split test

The training is mmrank train with --resume, in this process; the evaluation reloads its last
complete checkpoint. result.json in the work dir is written last and atomically:
`{"metrics": {"coco/bbox_mAP": 0.388, ...}, "split": "test", ...}`.
"""

import argparse
import json
import os
import sys
from collections.abc import Container
from pathlib import Path

from mmrank.cli.config_options import add_config_option
from mmrank.cli.errors import run
from mmrank.cli.options import tool_parser
from mmrank.cli.train import make_parser, start
from mmrank.errors import show_user_errors
from mmrank.experiments.records import current_commit, round_figure
from mmrank.files import write_atomically
from mmrank.pictures.training_curves import read_scalars
from mmrank.runners.build import build_runner
from mmrank.runners.config import load
from mmrank.runners.folder_lock import lock_folder


def parse_args(arguments=None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('--work-dir', required=True, help='folder of the run, its own')
    split = 'data to evaluate (default: test)'
    parser.add_argument('--split', choices=['val', 'test'], default='test', help=split)
    add_config_option(parser)
    return parser.parse_args(arguments)


def train(args: argparse.Namespace) -> None:
    """Train to the end, in this process: a kill leaves none behind."""
    words = [args.config, '--work-dir', args.work_dir, '--resume', 'auto']
    own = make_parser().parse_args(words)
    own.cfg_options = args.cfg_options
    if status := run(start, own):
        sys.exit(f'The training ended with status {status}: see above.')


def evaluate(args: argparse.Namespace) -> dict:
    """Evaluate the last whole checkpoint of the work dir."""
    from mmengine.hooks import Hook

    class EndHook(Hook):
        def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
            self.meta = checkpoint.get('meta', {})

    from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint

    # A work dir of its own for the logs.
    config = load(args.config, args.cfg_options, str(Path(args.work_dir, args.split)))
    for name in (f'{args.split}_dataloader', f'{args.split}_evaluator'):
        if config.get(name) is None:
            sys.exit(f'{args.config} has no `{name}`, which --split {args.split} needs.')
    checkpoint = find_last_whole_checkpoint(args.work_dir)
    if checkpoint is None:
        sys.exit(f'The training left no checkpoint in {args.work_dir}.')
    config.load_from = checkpoint
    config.resume = False
    if config.get('visualizer'):
        config.visualizer.name = args.split  # of its own, or it writes into the training's log
    runner = build_runner(config)
    runner.register_hook(end := EndHook())
    metrics = {}
    for key, value in (runner.test() if args.split == 'test' else runner.val()).items():
        if hasattr(value, 'item') and getattr(value, 'size', 1) in (1, ()):
            value = value.item()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            metrics[key] = round_figure(value)
    step = end.meta.get('iter')
    epochs = end.meta.get('epoch')
    scale = 1
    if config.get('default_hooks', {}).get('logger', {}).get('log_metric_by_epoch', True):
        # mmengine logs a validation at its epoch; a loop of iterations has none.
        scale = step // epochs if epochs and 'max_epochs' in config.train_cfg else 0
    curve = _read_curve(Path(args.work_dir), metrics, scale) if scale else []
    return {'checkpoint': checkpoint, 'step': step, 'metrics': metrics, 'curve': curve}


def _read_curve(work_dir: Path, metrics: Container[str], iterations: int) -> list[list]:
    """``[step, metrics]`` of each validation in the logs of a training, the last one of a step.

    ``iterations`` is the number of them in a step of the log.
    """
    points = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for values in read_scalars(path):
            if found := {x: round_figure(y) for x, y in values.items() if x in metrics}:
                points[values['step'] * iterations] = found
    return [*map(list, sorted(points.items()))]


@show_user_errors()
def main() -> None:
    args = parse_args()
    # The training of a tool that was killed ends a moment after it.
    with lock_folder(args.work_dir):
        train(args)
        measured = evaluate(args)
    measured['seconds'] = round(sum(os.times()[:4]), 1)  # of CPU, with its processes' seconds
    measured['commit'] = current_commit()
    result = Path(args.work_dir) / 'result.json'
    content = measured | {key: getattr(args, key) for key in ('split', 'config', 'cfg_options')}
    write_atomically(json.dumps(content, indent=1).encode(), result)
    print(f'{args.split} metrics written to {result}')


if __name__ == '__main__':
    sys.exit(main())
