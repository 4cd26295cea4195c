"""The demo's detector, killed and resumed, ends with the same bits."""

import signal
from pathlib import Path

import pytest
import torch
from forked_processes import process_context
from training_ends import assert_same, read_losses

pytest.importorskip('mmdet', reason='the detector is a model of mmdet')

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / 'configs/stable_ap/retinanet_r18_fpn_stable-ap_demo.py'


def train(work_dir, data_root, kill, resume) -> None:
    """Train two epochs of four iterations; write the end state."""
    import resume_run
    from mmengine.config import Config
    from mmengine.runner import Runner

    torch.set_num_threads(1)
    config = Config.fromfile(CONFIG)
    config.merge_from_dict(
        {
            'work_dir': str(work_dir),
            'resume': resume,
            'train_dataloader.batch_size': 4,
            'train_cfg.max_epochs': 2,
            'train_cfg.val_interval': 1,
            'default_hooks.checkpoint': {
                '_delete_': True,
                'type': 'mmrank.AtomicCheckpointHook',
                'interval': 1,
            },
            'model.bbox_head.loss_cls.mean_mode': 'exact',
            'optim_wrapper.optimizer': {'_delete_': True, 'type': 'mmrank.SUM', 'lr': 0.01},
        }
    )
    for split in ('train', 'val', 'test'):
        loader = config[f'{split}_dataloader']
        loader.dataset.data_root = f'{data_root}/'
        if split != 'train':
            evaluator = config[f'{split}_evaluator']
            evaluator.ann_file = f'{data_root}/annotations/val.json'
    config.custom_hooks = [
        *(hook for hook in config.custom_hooks if 'RNG' not in hook.type),
        {'type': 'mmrank.RNGStateHook'},
        {'type': 'mmrank.PreviousWeightsHook'},
        {'type': 'mmengine.EMAHook', 'momentum': 0.1},
        {'type': 'mmengine.LossLogHook'},
    ]
    if kill is not None:
        hook = {'type': 'mmengine.KillHook', 'where': kill[0]}
        config.custom_hooks.append({**hook, 'count': kill[1]})
    assert resume_run.KillHook is not None  # registers the hooks
    runner = Runner.from_cfg(config)
    runner.train()
    ema = next(hook for hook in runner.hooks if hasattr(hook, 'ema_model'))
    torch.save(
        {
            'model': runner.model.state_dict(),
            'ema': ema.ema_model.state_dict(),
            'optimizer': runner.optim_wrapper.state_dict(),
        },
        Path(work_dir) / 'final_0.pt',
    )


@pytest.mark.slow
@pytest.mark.parametrize('kill', [('iteration', 6), ('validation', 2)])
def test_detector_resumes_exactly(tmp_path, kill):
    from lib.synthetic.shapes_coco import ShapesSpec, write_shapes_coco

    data = tmp_path / 'data'
    # No image without an object, which the config would leave out.
    spec = ShapesSpec(num_train=16, num_val=16, num_test=0, empty_fraction=0)
    write_shapes_coco(data, spec)
    context = process_context()

    def run(name, kill=None, resume=False):
        process = context.Process(target=train, args=(tmp_path / name, data, kill, resume))
        process.start()
        process.join(600)
        return process.exitcode

    assert run('whole') == 0
    assert run('resumed', kill) == -signal.SIGKILL
    assert run('resumed', resume=True) == 0
    states = [
        torch.load(tmp_path / name / 'final_0.pt', weights_only=False)
        for name in ('resumed', 'whole')
    ]
    assert any('mean_positive' in key for key in states[0]['model'])
    assert_same(*states)
    losses = read_losses(tmp_path / 'whole', 0)
    assert len(losses) == 8
    assert read_losses(tmp_path / 'resumed', 0) == losses
