r"""Evaluate a checkpoint of a config of mmrank, mmdet or mmpretrain.

Examples:
  # the metrics of the config's test split
  mmrank test CONFIG work_dirs/NAME/epoch_12.pth

  # keep the predictions, and draw them
  mmrank test CONFIG CHECKPOINT --out predictions.pkl --show-dir drawn

  # test on another split
  mmrank test CONFIG CHECKPOINT --cfg-options test_dataloader.dataset.ann_file=val.json \
      test_evaluator.ann_file=data/mine/val.json

  # at the scores that publish_model.py --thresholds has written into the checkpoint
  mmrank test CONFIG CHECKPOINT --threshold auto

  # four GPUs
  tools/dist_test.sh CONFIG CHECKPOINT 4

exit status: 0 tested, 2 the config, the data or the command line is wrong.
"""

import argparse
import os
import sys
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import mmengine
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import DumpResults

from mmrank.cli.config_options import load_config, train_or_test_parser
from mmrank.cli.errors import run
from mmrank.engine.resume.matching import bare_model
from mmrank.errors import UserError
from mmrank.experiments.records import round_figure
from mmrank.files import check_output, temporary_folder
from mmrank.models.calibrated_model import CalibratedMixin
from mmrank.runners.build import build_runner, check_data
from mmrank.runners.launch import is_main_process
from mmrank.runners.models import read_weights


def _set_tta(cfg: Config) -> None:
    """Let the model average over augmented images; refuse one that shows calibrated scores."""
    if 'CalibratedModel' in str(cfg.model.get('type')):
        raise UserError(
            'the calibration was fitted on scores without --tta, which merges predictions by their '
            'scores.\n  Fix: leave out --tta, or the calibration'
        )
    is_detection = cfg.get('default_scope') == 'mmdet'
    if 'tta_model' not in cfg:
        # Without a scope: mmdet registers its own in the root of mmengine.
        nms = dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100)
        detection = dict(type='DetTTAModel', tta_cfg=nms)
        cfg.tta_model = detection if is_detection else dict(type='mmpretrain.AverageClsScoreTTA')
    data = cfg.test_dataloader.dataset
    while 'dataset' in data:
        data = data.dataset
    if 'tta_pipeline' not in cfg:
        if not data.get('pipeline'):
            what = '--tta: the data set of test_dataloader has no pipeline to flip images in'
            raise UserError(what, 'leave out --tta, or set tta_pipeline')
        pack = deepcopy(data.pipeline[-1])
        if is_detection:
            keys = 'img_id img_path ori_shape img_shape scale_factor flip flip_direction'
            pack.meta_keys = tuple(keys.split())
        flips = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]
        cfg.tta_pipeline = [
            *deepcopy(data.pipeline[:-1]),
            dict(type='TestTimeAug', transforms=[flips, [pack]]),
        ]
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    data.pipeline = cfg.tta_pipeline


def _set_threshold(cfg: Config, threshold: str, trust: bool) -> None:
    """Let the metric of boxes report at a score; ``auto``: at the checkpoint's, one a class."""
    kinds = [str(x.get('type')) for x in (cfg.test_evaluator,) if isinstance(x, dict)]
    if kinds != ['mmrank.CocoMetric']:
        what = f'--threshold: test_evaluator is {", ".join(kinds) or "a list"}'
        raise UserError(what, "test_evaluator=dict(type='mmrank.CocoMetric', ann_file=...)")
    if threshold == 'auto':
        meta = read_weights(cfg.load_from, trust).get('meta') or {}
        if 'thresholds' not in meta:
            fix = 'write them by publish_model.py --thresholds VAL.json VAL.bbox.json'
            raise UserError(f'{cfg.load_from} has no thresholds', fix)
        cfg.test_evaluator.thresholds = meta['thresholds']['classes']
        cfg.test_evaluator.figure_iou = meta['thresholds']['iou']
        return
    try:
        cfg.test_evaluator.thresholds = float(threshold)
    except ValueError:
        raise UserError(f'--threshold {threshold!r} is not a score', 'auto, or 0.5') from None


def _test_and_keep(runner, args: argparse.Namespace) -> None:
    """Test, and write what ``--out`` is to keep, whole or not at all."""
    with temporary_folder(args.out) if is_main_process() else nullcontext(Path()) as folder:
        path = folder / Path(args.out).name
        if path.suffix != '.json':
            dump = DumpResults
            if runner.cfg.get('default_scope') == 'mmdet':
                from mmdet.evaluation import DumpDetResults as dump
            runner.test_evaluator.metrics.append(dump(out_file_path=str(path)))
        metrics = runner.test()
        if is_main_process():
            if path.suffix == '.json':
                mmengine.dump({key: round_figure(x) for key, x in metrics.items()}, path)
            os.replace(path, args.out)


def start(args: argparse.Namespace) -> None:
    if args.out is not None and not args.out.endswith(('.pkl', '.json')):
        what = f'--out {args.out!r} has an unknown ending'
        raise UserError(what, '.pkl for the predictions, .json for the metrics')
    if args.out is not None and is_main_process():
        check_output(args.out, args.config, args.checkpoint)
    if not Path(args.checkpoint).exists() and '://' not in args.checkpoint:
        raise UserError(
            f'checkpoint {args.checkpoint!r} does not exist.\n  Fix: pass the .pth file that '
            'training wrote into its work folder (work_dirs/<name of the config>)'
        )
    cfg = load_config(args)
    if not cfg.get('test_dataloader') or not cfg.get('test_evaluator'):
        what = f'{args.config} has no test_dataloader or test_evaluator: it cannot be tested'
        raise UserError(what, 'add them, as in configs/_base_/datasets')
    cfg.load_from = args.checkpoint
    cfg.resume = False
    if args.show_dir:
        hook = (cfg.get('default_hooks') or {}).get('visualization')
        if not hook:
            raise UserError(
                '--show-dir needs a drawing hook, and the config has none.\n  Fix: add '
                "default_hooks.visualization = dict(type='DetVisualizationHook') (mmdet) or "
                "dict(type='VisualizationHook') (mmpretrain)"
            )
        is_detection = 'Det' in str(hook.type)
        hook['draw' if is_detection else 'enable'] = True
        hook['test_out_dir' if is_detection else 'out_dir'] = args.show_dir
    if args.threshold is not None:
        _set_threshold(cfg, args.threshold, args.trust_checkpoint)
    if args.tta:
        _set_tta(cfg)
    warnings = [] if args.no_check else check_data(cfg, splits=('test',))
    runner = build_runner(cfg, allow_partial=args.allow_partial)
    model = bare_model(runner.model)
    if isinstance(model, CalibratedMixin):
        # It compares the classes with its maps' classes.
        loop: Any = runner.test_loop
        model.dataset_meta = loop.dataloader.dataset.metainfo
    if args.out is None:
        runner.test()
    else:
        _test_and_keep(runner, args)
    sys.stderr.writelines(f'{text}\n' for text in warnings)


def main() -> int:
    parser = train_or_test_parser(
        __doc__,
        out=(None, 'file for the predictions (.pkl) or the metrics (.json)'),
        show_dir=(None, 'folder for drawn predictions'),
        threshold=(None, 'score to report recall and false alarms at; auto: of the checkpoint'),
        tta=(False, "average over the config's tta_pipeline, or flipped images"),
    )
    parser.add_argument('checkpoint', help='checkpoint file or URL')
    return run(start, parser.parse_args())
