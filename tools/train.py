"""Train a model from a config of mmrank, mmdet or mmpretrain."""

import argparse
import sys
from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device

try:
    from mmrank.apis.entry_point import (
        UsageError,
        add_common_options,
        build_runner,
        check_data,
        load,
        run,
    )
except ModuleNotFoundError as error:
    if error.name != 'mmrank':
        raise
    sys.stderr.write(
        'error: mmrank is not installed in this environment.\n'
        '  Fix: pip install -e . in the checkout (or make env)\n'
    )
    sys.exit(2)

EPILOG = """\
examples:
  # one process; logs and checkpoints go to work_dirs/<name of the config>
  python tools/train.py configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py

  # resume after an interruption, from the last complete checkpoint
  python tools/train.py CONFIG --resume

  # change settings without a new file
  python tools/train.py CONFIG --seed 1 --work-dir work_dirs/try1 \\
      --cfg-options model.bbox_head.loss_cls.tau=0.5 train_cfg.max_epochs=6

  # four GPUs on this machine, the learning rate scaled to the batch
  tools/dist_train.sh CONFIG 4 --auto-scale-lr --amp

  # an installed mmrank, config by name
  mim train mmrank retinanet_r18_fpn_stable-ap_bccd.py

exit status: 0 trained, 2 something in the config, the data or the command
line is wrong (see the message), 130 interrupted.
"""


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--work-dir',
        help="folder of logs and checkpoints (default: the config's work_dir, "
        'else work_dirs/<name of the config>)',
    )
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CHECKPOINT',
        help='resume from this checkpoint; without a value, or with "auto", '
        'from the last complete one in the work folder (incomplete ones are '
        'skipped), or from the start if there is none',
    )
    parser.add_argument(
        '--amp',
        action='store_true',
        help='mixed precision with dynamic loss scaling (needs a GPU)',
    )
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate by (processes x batch) / '
        'auto_scale_lr.base_batch_size, the batch it was tuned for',
    )
    parser.add_argument(
        '--seed',
        type=int,
        help='seed of weights, shuffling and augmentation (default: the '
        "config's randomness.seed, else a new one each time)",
    )
    parser.add_argument(
        '--no-validate',
        action='store_true',
        help='train without evaluating in between',
    )
    parser.add_argument(
        '--no-check',
        action='store_true',
        help='skip the check of COCO files and retrieval data sets before the '
        'start',
    )
    add_common_options(parser)
    return parser.parse_args()


def set_amp(cfg: Config) -> None:
    """Switch the optimiser wrapper to mixed precision."""
    if get_device() in ('cpu', 'mps'):
        raise UsageError(
            '--amp requires a GPU that mmengine supports, and there is '
            'none.\n  Fix: remove --amp, or check tools/check_env.py'
        )
    kind = cfg.optim_wrapper.get('type', 'OptimWrapper')
    if kind not in ('OptimWrapper', 'AmpOptimWrapper'):
        raise UsageError(
            f'--amp: optim_wrapper.type is {kind!r}, which --amp cannot '
            'switch.\n  Fix: set mixed precision in the config '
            "(type='AmpOptimWrapper')"
        )
    cfg.optim_wrapper.type = 'AmpOptimWrapper'
    cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')


def set_auto_scale_lr(cfg: Config) -> None:
    """Switch the scaling of the learning rate on."""
    if 'base_batch_size' not in (cfg.get('auto_scale_lr') or {}):
        raise UsageError(
            '--auto-scale-lr: the config does not set the batch size of its '
            'learning rate.\n  Fix: add auto_scale_lr = '
            'dict(base_batch_size=16) with that total batch size'
        )
    cfg.auto_scale_lr.enable = True


def set_resume(cfg: Config, resume: str) -> None:
    """Choose the checkpoint to resume from."""
    if resume == 'auto':
        from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint

        found = find_last_whole_checkpoint(cfg.work_dir)
        if found is None:
            print(f'No complete checkpoint in {cfg.work_dir}: starting over.')
            cfg.resume = False
            return
        print(f'Resuming from {found}')
        resume = found
    elif not Path(resume).is_file() and '://' not in resume:
        raise UsageError(
            f'--resume: checkpoint {resume!r} does not exist.\n  Fix: pass '
            'its path, or --resume alone to use the last one in '
            f'{cfg.work_dir}'
        )
    cfg.resume = True
    cfg.load_from = resume


def main(args: argparse.Namespace) -> None:
    """Train."""
    cfg = load(args)
    for key in ('train_dataloader', 'train_cfg', 'optim_wrapper', 'model'):
        if not cfg.get(key):
            raise UsageError(
                f'{args.config} has no {key}: it is not a config that can be '
                f'trained.\n  Fix: name a full config, not a part of one '
                f'(configs/_base_)'
            )
    if args.amp:
        set_amp(cfg)
    if args.auto_scale_lr:
        set_auto_scale_lr(cfg)
    if args.seed is not None:
        cfg.setdefault('randomness', {})
        cfg.randomness.seed = args.seed
    if args.no_validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    if args.resume is not None:
        set_resume(cfg, args.resume)
    if not args.no_check:
        check_data(cfg, splits=('train', 'val', 'test'))
    build_runner(
        cfg,
        # Weights to start from may be those of another task.
        strict=bool(cfg.get('resume')),
        allow_partial=args.allow_partial,
    ).train()


if __name__ == '__main__':
    sys.exit(run(main, parse_args()))
