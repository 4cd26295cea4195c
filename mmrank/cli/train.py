"""Train a config of mmrank, mmdet or mmpretrain.

Examples:
  mmrank train configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py

  # go on after an interruption, from the last complete checkpoint
  mmrank train CONFIG --resume

  # change settings without a new file
  mmrank train CONFIG --seed 1 --work-dir work_dirs/try1 --cfg-options train_cfg.max_epochs=6

  # four GPUs, the learning rate scaled to the batch
  tools/dist_train.sh CONFIG 4 --auto-scale-lr --amp

exit status: 0 trained, 2 the config, the data or the command line is wrong, 130 interrupted by
Ctrl-C, 143 by SIGTERM.
"""

import argparse
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.device import get_device
from tabulate import tabulate

from mmrank.cli.config_options import load_config, train_or_test_parser
from mmrank.cli.errors import run
from mmrank.errors import UserError
from mmrank.runners.build import build_runner, check_data
from mmrank.runners.folder_lock import lock_folder
from mmrank.runners.launch import is_main_process


def _set_amp(cfg: Config) -> None:
    if get_device() in ('cpu', 'mps'):
        what = '--amp requires a GPU that mmengine supports'
        raise UserError(what, 'remove --amp, or check mmrank doctor')
    kind = cfg.optim_wrapper.get('type', 'OptimWrapper')
    if kind not in ('OptimWrapper', 'AmpOptimWrapper'):
        what = f'--amp: optim_wrapper.type is {kind!r}, which --amp cannot switch'
        raise UserError(what, "set mixed precision in the config (type='AmpOptimWrapper')")
    cfg.optim_wrapper.type = 'AmpOptimWrapper'
    cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')


def _set_auto_scale_lr(cfg: Config) -> None:
    if 'base_batch_size' not in (cfg.get('auto_scale_lr') or {}):
        what = '--auto-scale-lr: the config does not set the batch size of its learning rate'
        fix = 'add auto_scale_lr = dict(base_batch_size=16) with that total batch size'
        raise UserError(what, fix)
    cfg.auto_scale_lr.enable = True


def _set_resume(cfg: Config, resume: str) -> None:
    if resume == 'auto':
        from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint

        last = find_last_whole_checkpoint(cfg.work_dir)
        if last is None:
            print(f'No complete checkpoint in {cfg.work_dir}: starting over.')
            cfg.resume = False
            return
        resume = last
        print(f'Resuming from {resume}')
    elif not Path(resume).exists() and '://' not in resume:
        what = f'--resume: checkpoint {resume!r} does not exist'
        fix = f'pass its path, or --resume alone to use the last one in {cfg.work_dir}'
        raise UserError(what, fix)
    cfg.resume = True
    cfg.load_from = resume


def _refuse_other_training(cfg: Config) -> None:
    """Refuse to start in the folder of another config: its checkpoints would be overwritten.

    mmengine writes the config of a training, under the name of its file, beside its checkpoints.
    """
    folder = Path(cfg.work_dir)
    name = Path(cfg.filename).name
    configs = sorted(path.name for path in folder.glob('*.py'))
    checkpoints = [*folder.glob('epoch_*.pth'), *folder.glob('iter_*.pth')]
    if checkpoints and configs and name not in configs:
        what = f'{folder} holds checkpoints of {configs[0]}, and {name} would overwrite them'
        raise UserError(what, 'another --work-dir, or --resume to go on from them')


def start(args: argparse.Namespace) -> None:
    cfg = load_config(args)
    for key in ('train_dataloader', 'train_cfg', 'optim_wrapper', 'model'):
        if not cfg.get(key):
            what = f'{args.config} has no {key}: it is not a config that can be trained'
            raise UserError(what, 'name a full config, not a part of one (configs/_base_)')
    if args.amp:
        _set_amp(cfg)
    if args.auto_scale_lr:
        _set_auto_scale_lr(cfg)
    if args.seed is not None:
        cfg.setdefault('randomness', {})
        cfg.randomness.seed = args.seed
    if args.no_validate:
        cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    with ExitStack() as stack:
        if is_main_process():
            stack.enter_context(lock_folder(cfg.work_dir, '.training.lock'))
            if args.resume is None and not cfg.get('resume'):
                _refuse_other_training(cfg)
        train(cfg, args)


def train(cfg: Config, args: argparse.Namespace) -> None:
    """Train in a work folder that this process holds."""
    if args.resume is not None:
        _set_resume(cfg, args.resume)
    warnings = [] if args.no_check else check_data(cfg, splits=('train', 'val', 'test'))
    # Weights to start from may be another task's.
    runner = build_runner(cfg, bool(cfg.get('resume')), args.allow_partial)
    from mmrank.engine.hooks import InterruptHook

    runner.register_hook(InterruptHook(args.save_on_signal))
    runner.train()
    sys.stderr.writelines(f'{text}\n' for text in warnings)
    if is_main_process():
        dataset = runner.val_dataloader.dataset if cfg.get('val_dataloader') else None
        info = runner.message_hub.runtime_info
        print('\n'.join(_closing_lines(args.config, cfg.work_dir, info, dataset)))


def _closing_lines(config: str, work_dir: str, info: Mapping, dataset: Any = None) -> list[str]:
    """What a training has left, and what to do with it; ``info`` is what mmengine notes of it."""
    from mmrank.engine.hooks.atomic_checkpoint_hook import BOXES
    from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint

    chosen = find_last_whole_checkpoint(work_dir)
    lines = ['']
    if chosen is not None:
        lines.append(f'Last checkpoint: {chosen}')
    best = {key.removeprefix('best_ckpt'): path for key, path in info.items() if 'best_ckpt' in key}
    for key, path in best.items():
        if path and Path(path).exists():
            chosen = path
            lines.append(f'Best checkpoint: {path} (score {info[f"best_score{key}"]:.4g})')
    if not best:
        lines.append(
            'Best checkpoint: not kept; that takes validation and, for a detector, '
            "default_hooks.checkpoint.save_best='coco/bbox_mAP'"
        )
    if chosen is None:
        return lines
    commands = [['test', config, chosen], ['draw', 'training', work_dir]]
    boxes = Path(chosen).with_suffix(BOXES)
    while hasattr(dataset, 'dataset'):
        dataset = dataset.dataset
    table = []
    if boxes.exists() and hasattr(dataset, 'ann_file'):
        table = _table_of_classes(dataset, boxes)
    if table:
        files = [dataset.ann_file, dataset.data_prefix['img'], f'best={boxes}']
        commands.insert(0, ['draw', 'detections', *files, '--out', f'{work_dir}/detections.png'])
    return [*lines, *table, 'Next:', *(f'  {shlex.join(["mmrank", *words])}' for words in commands)]


def _table_of_classes(dataset: Any, boxes: Path) -> list[str]:
    """AP of each class by the boxes of a checkpoint, and the score from which they are drawn."""
    from mmrank.evaluation.box_evaluation import best_f1_thresholds, evaluate_boxes
    from mmrank.pictures.pr_curves import PRCurves

    try:
        evaluation = evaluate_boxes(dataset.ann_file, str(boxes))
    except UserError:  # which --no-check let pass; the training is done
        return []
    precisions = PRCurves.of(evaluation).by_class()
    rows = [
        (name, f'{ap:.3f}'.replace('nan', 'n/a'), f'{score:.3g}'.replace('inf', 'n/a'))
        for (name, ap), score in zip(precisions.items(), best_f1_thresholds(evaluation).values())
        if name in dataset.metainfo['classes']
    ]
    heads = ('class', 'mAP', 'score with the best F1')
    return tabulate(rows, heads, disable_numparse=True).splitlines()


def make_parser() -> argparse.ArgumentParser:
    parser = train_or_test_parser(
        __doc__,
        amp=(False, 'mixed precision with dynamic loss scaling (needs a GPU)'),
        auto_scale_lr=(False, 'scale the learning rate to the total batch'),
        no_validate=(False, 'train without evaluating in between'),
        save_on_signal=(False, 'save a checkpoint at Ctrl-C or SIGTERM (Slurm)'),
    )
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CHECKPOINT',
        help='resume from this checkpoint; without a value, or with "auto", from the last complete '
        'one in the work folder, or from the start if there is none',
    )
    seed = "seed of all that is random (default: the config's, else a new one)"
    parser.add_argument('--seed', type=int, help=seed)
    return parser


def main() -> int:
    return run(start, make_parser().parse_args())
