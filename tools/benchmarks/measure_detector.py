"""Test a detector once: write its predictions, measure speed and memory.

    python tools/benchmarks/measure_detector.py CONFIG CHECKPOINT --out DIR

coco_table.py runs this for each model, in a process of its own so that one model's memory is not
another's. Without a checkpoint the config is trained first, in DIR/train, as run_seeds.py trains:
an interrupted training resumes when the same command is run again.

Written to DIR: predictions.bbox.json (COCO results of the test split) and, last, run.json (speed,
memory, what was run).
"""

import argparse
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from mmrank.apis.common.command_line import tool_parser
from mmrank.errors import UserError


def parse_args(arguments=None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    add = parser.add_argument
    add('config', help='config file of a detector')
    add('checkpoint', nargs='?', help='checkpoint (default: train first)')
    add('--out', required=True, help='folder of the run')
    add('--digest', default='', help='what coco_table.py recognises the run by later')
    add('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE', help='overrides of the config')
    from mmrank.apis.entry_point import add_checkpoint_options

    add_checkpoint_options(parser)
    return parser.parse_args(arguments)


def get_checkpoint(args: argparse.Namespace) -> str:
    """The checkpoint given, or the last one of a training."""
    if args.checkpoint:
        return args.checkpoint
    from mmrank.apis.seeds.train_and_test import training_words
    from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint

    folder = str(Path(args.out) / 'train')
    words = training_words(args, folder)
    # Its memory is not the test's.
    status = subprocess.run(
        [sys.executable, '-m', 'mmrank.apis.cli', *words], check=False
    ).returncode
    if status:
        sys.exit(f'The training ended with status {status}: see above.')
    checkpoint = find_last_whole_checkpoint(folder)
    if checkpoint is None:
        raise UserError(f'the training left no checkpoint in {folder}')
    return checkpoint


def prepare_evaluator(cfg, args: argparse.Namespace) -> str:
    """Let the config's COCO or LVIS metric write files and nothing else."""
    evaluators = cfg.get('test_evaluator') or []
    if isinstance(evaluators, dict):
        evaluators = [evaluators]
    for evaluator in evaluators:
        kind = str(evaluator.get('type', '')).rpartition('.')[2]
        if kind not in ('CocoMetric', 'LVISMetric'):
            continue
        if not evaluator.get('ann_file'):
            raise UserError(
                f'{args.config}: test_evaluator has no ann_file.\n  Fix: '
                'name the annotation file of the test split'
            )
        prefix = str(Path(args.out) / 'predictions')
        evaluator.update(format_only=True, outfile_prefix=prefix)
        cfg.test_evaluator = evaluator
        return evaluator.ann_file
    kinds = [str(e.get('type')) for e in evaluators]
    raise UserError(
        f'{args.config}: test_evaluator is {kinds or "missing"}, which '
        'writes no COCO predictions.\n  Fix: add a CocoMetric or LVISMetric'
    )


def main(args: argparse.Namespace) -> None:
    import torch

    from detectors.inference_meter import InferenceMeter
    from detectors.runs import RunRecord, write_record
    from mmrank.apis.common.folder_lock import lock_folder
    from mmrank.apis.entry_point import build_runner, check_data
    from mmrank.apis.seeds.train_and_test import load_config

    with ExitStack() as stack:
        stack.enter_context(lock_folder(args.out))
        cfg = load_config(args, Path(args.out) / 'test')
        ann_file = prepare_evaluator(cfg, args)
        check_data(cfg, splits=('test',))
        cfg.load_from = get_checkpoint(args)
        cfg.resume = False
        runner = build_runner(cfg, allow_partial=args.allow_partial)
        meter = InferenceMeter()
        runner.register_hook(meter)
        runner.test()
        measured = ('timed_images', 'images_per_second', 'images_per_second_with_data')
        measured += ('memory_bytes', 'memory_kind')
        device = f'CPU, {torch.get_num_threads()} threads'
        if next(runner.model.parameters()).is_cuda:
            device = torch.cuda.get_device_name()
        write_record(
            RunRecord(
                digest=args.digest,
                config=args.config,
                checkpoint=cfg.load_from,
                ann_file=ann_file,
                device=device,
                batch_size=runner.test_dataloader.batch_size,
                parameters=sum(p.numel() for p in runner.model.parameters()),
                **{key: getattr(meter, key) for key in measured},
            ),
            args.out,
        )


if __name__ == '__main__':
    from mmrank.apis.common.command_errors import run

    sys.exit(run(main, parse_args()))
