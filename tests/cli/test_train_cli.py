"""The entry points: help, messages, their handling of the config, and names that no one reads."""

import importlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from coco_document import make_document
from mmengine.config import Config
from published_configs import LEAVES, load
from tiny_tool_run import write_config

from mmrank.cli import train
from mmrank.errors import UserError
from mmrank.runners import build, config
from mmrank.runners.config import apply_options, read_config
from mmrank.runners.config_names import check_file_names, check_option_names

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / 'tools'


@pytest.mark.parametrize(
    'script',
    ['dist_train.sh', 'dist_test.sh', 'slurm_train.sh', 'slurm_test.sh', 'jobs/slurm_requeue.sh'],
)
def test_launch_scripts(script):
    path = TOOLS / script
    assert os.access(path, os.X_OK)
    assert subprocess.run(['bash', '-n', str(path)]).returncode == 0
    done = subprocess.run(['bash', str(path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert f'tools/{script} ' in done.stdout
    assert 'launcher' not in done.stdout


def test_a_list_of_loggers_alone_is_a_visualizer(tmp_path):
    cfg = Config.fromfile(write_config(tmp_path))
    cfg.launcher = 'none'
    cfg.visualizer = dict(vis_backends=[dict(type='LocalVisBackend')])
    visualizer = build.build_runner(cfg).visualizer
    assert type(visualizer).__name__ == 'Visualizer'
    assert [*visualizer._vis_backends] == ['LocalVisBackend']


def test_an_optimiser_of_the_scope_is_known(tmp_path):
    pytest.importorskip('mmpretrain')
    cfg = Config.fromfile(write_config(tmp_path))
    cfg.update(launcher='none', default_scope='mmpretrain')
    cfg.optim_wrapper.optimizer = dict(type='LARS', lr=0.1)
    assert build.build_runner(cfg).optim_wrapper.optimizer.type == 'LARS'


def test_absent_package_is_named(monkeypatch):
    cfg = Config(dict(model=dict(type='mmdet.RetinaNet', layers=[])))
    config.check_packages(cfg)
    monkeypatch.setitem(sys.modules, 'mmdet', None)
    with pytest.raises(UserError, match='onedl-mmdetection'):
        config.check_packages(cfg)
    # A retrieval user has no mmdet and needs none.
    config.check_packages(Config(dict(default_scope='mmengine')))


def test_transformers_5_is_reported_before_mmpretrain_breaks(monkeypatch):
    monkeypatch.setattr(config.metadata, 'version', lambda _: '5.0.1')
    monkeypatch.setattr(config.importlib.util, 'find_spec', lambda name: name)
    cfg = Config(dict(default_scope='mmdet'))
    with pytest.raises(UserError, match=r"'transformers<5'"):
        config.check_packages(cfg)
    config.check_packages(Config(dict(default_scope='mmengine')))
    monkeypatch.setattr(config.metadata, 'version', lambda _: '4.57.6')
    config.check_packages(cfg)


def test_work_dir_priority(tmp_path, loads_as_data):
    path = tmp_path / 'name.py'
    path.write_text('x = 1\n')
    assert config.load(str(path)).work_dir == 'work_dirs/name'
    path.write_text("work_dir = 'from_config'\n")
    assert config.load(str(path)).work_dir == 'from_config'
    assert config.load(str(path), work_dir='from_command').work_dir == 'from_command'


def test_mmpretrain_loaders_stack_their_batches():
    cfg = Config(dict(default_scope='mmpretrain', test_dataloader=None))
    cfg.train_dataloader = dict(batch_size=2)
    # A config that inherits from another package has its scope.
    cfg.val_dataloader = dict(collate_fn=dict(type='pseudo_collate', _scope_='mmpretrain'))
    config.set_collate(cfg)
    assert cfg.train_dataloader.collate_fn.type == 'default_collate'
    assert cfg.val_dataloader.collate_fn == dict(type='pseudo_collate')
    cfg = Config(dict(default_scope='mmdet', train_dataloader=dict(a=1)))
    config.set_collate(cfg)
    assert 'collate_fn' not in cfg.train_dataloader


def test_options_of_the_optimiser(monkeypatch):
    cfg = Config(dict(auto_scale_lr=dict(base_batch_size=16, enable=False)))
    train._set_auto_scale_lr(cfg)
    assert cfg.auto_scale_lr.enable
    cfg = Config(dict(optim_wrapper=dict(type='OptimWrapper')))
    monkeypatch.setattr(train, 'get_device', lambda: 'cuda')
    for _ in range(2):
        train._set_amp(cfg)
        assert cfg.optim_wrapper.type == 'AmpOptimWrapper'
        assert cfg.optim_wrapper.loss_scale == 'dynamic'
    cfg.optim_wrapper.type = 'Mine'
    with pytest.raises(UserError, match='Mine'):
        train._set_amp(cfg)


def test_check_env_is_happy_here_and_not_with_a_broken_core(run_script, monkeypatch):
    status, output, _ = run_script(TOOLS / 'check_env.py')
    assert status == 0, output
    assert 'StableAPLoss builds' in output.replace('\n', ' ')
    load = importlib.import_module

    def torn(name):
        if name == 'mmengine':
            raise ImportError('torn')
        return load(name)

    monkeypatch.setattr(importlib, 'import_module', torn)
    status, output, _ = run_script(TOOLS / 'check_env.py')
    assert status == 1, output
    assert 'The core is broken: mmengine' in output
    assert 'ImportError: torn' in output


def test_a_package_of_two_distributions_is_refused(tmp_path, run_script, monkeypatch):
    """Of which pip says that it is of the fork and of upstream."""
    cfg = Config(dict(default_scope='mmdet'))
    config.check_packages(cfg)
    for name, version in (('onedl-mmcv', '2.3.6'), ('mmcv-lite', '2.1.0')):
        folder = tmp_path / f'{name.replace("-", "_")}-{version}.dist-info'
        folder.mkdir()
        (folder / 'METADATA').write_text(f'Name: {name}\nVersion: {version}\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv('COLUMNS', '300')
    found = r'onedl-mmcv 2.3.6 and mmcv-lite 2.1.0 .* pip uninstall -y onedl-mmcv mmcv-lite, then'
    with pytest.raises(UserError, match=found):
        config.check_packages(cfg)
    status, output, _ = run_script(TOOLS / 'check_env.py')
    assert status == 1, output
    assert 'pip uninstall -y onedl-mmcv mmcv-lite' in output
    assert 'The core is broken: mmcv.' in output


def test_closing_lines_name_the_checkpoint_to_go_on_with(tmp_path):
    best = tmp_path / 'best_coco_bbox_mAP_epoch_2.pth'
    best.touch()
    info = dict(best_ckpt=str(best), best_score=0.41237, epoch=2)
    lines = train._closing_lines('mine.py', str(tmp_path), info)
    assert f'Best checkpoint: {best} (score 0.4124)' in lines
    assert f'  mmrank test mine.py {best}' in lines
    best.unlink()
    assert 'Next:' not in train._closing_lines('mine.py', str(tmp_path), info)
    without = train._closing_lines('mine.py', str(tmp_path), {})
    assert any('save_best=' in line for line in without)


def test_closing_lines_of_a_detector_say_from_which_score_its_boxes_are_right(tmp_path):
    best = tmp_path / 'best_iter_2.pth'
    best.touch()
    info = dict(best_ckpt=str(best), best_score=0.5)
    document = make_document()
    truth = tmp_path / "it's.json"
    truth.write_text(json.dumps(document))
    keys = ('image_id', 'category_id', 'bbox')
    boxes = [{key: x[key] for key in keys} | {'score': 0.875} for x in document['annotations']]
    boxes[1]['bbox'] = [1, 1, 2, 2]
    boxes.append(boxes[0] | {'bbox': [30, 20, 5, 5], 'score': 0.25})
    data = SimpleNamespace(ann_file=str(truth), data_prefix={'img': 'x'})
    data.metainfo = {'classes': ('cat', 'dog')}
    wrapped = SimpleNamespace(dataset=data)

    def lines():
        return train._closing_lines('mine.py', str(tmp_path), info, wrapped)

    assert not any('draw detections' in line for line in lines())  # it has no boxes
    best.with_suffix('.bbox.json').write_text(json.dumps(boxes))
    assert [line.split() for line in lines() if line[:3] in ('cat', 'dog')] == [
        ['cat', '1.000', '0.875'],
        ['dog', '0.000', 'n/a'],
    ]
    (draw,) = (shlex.split(line) for line in lines() if 'draw detections' in line)
    made = [str(truth), 'x', f'best={best.with_suffix(".bbox.json")}', '--out']
    assert draw[3:] == [*made, str(tmp_path / 'detections.png')]
    data.metainfo = {'classes': ('dog',)}
    assert not any(line.startswith('cat') for line in lines())
    truth.write_text('torn')
    assert not any('draw detections' in line for line in lines())
    assert f'  mmrank test mine.py {best}' in lines()


#: Parts that a config may add.
NEW_PARTS = (
    *('train_dataloader.batch_sampler.type', 'val_dataloader.collate_fn.type'),
    *('model.init_cfg.type', 'model.data_preprocessor.type', 'optim_wrapper.clip_grad.max_norm'),
    *('optim_wrapper.paramwise_cfg.custom_keys.backbone.lr_mult', 'train_cfg.type'),
    *('default_hooks.visualization.type', 'env_cfg.dist_cfg.backend', 'randomness.seed'),
    *('load_from', 'resume', 'auto_scale_lr.base_batch_size', 'tta_model.type'),
)


def test_published_configs_may_get_new_parts():
    for path in LEAVES:
        cfg = load(path)
        check_file_names(cfg, str(path))
        check_option_names(cfg, dict.fromkeys(NEW_PARTS))


def test_modules_of_an_option_are_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'my_parts_of_an_option.py').write_text('raise KeyError("it was imported")')
    with pytest.raises(KeyError, match='it was imported'):
        apply_options(Config(), {'custom_imports.imports': ['my_parts_of_an_option']})
    with pytest.raises(UserError, match='--cfg-options custom_imports.*\n.*PYTHONPATH'):
        apply_options(Config(), {'custom_imports.imports': ['no_such_module_of_mine']})


@pytest.mark.parametrize(
    ('name', 'setting'),
    [
        ('loadfrom', 'load_from'),
        ('custom_hook', 'custom_hooks'),
        ('randomnes', 'randomness'),
        ('Work_dir', 'work_dir'),
        ('optim_wraper', 'optim_wrapper'),
        ('val_evalutor', 'val_evaluator'),
        ('param_schedulers', 'param_scheduler'),
    ],
)
@pytest.mark.parametrize('has_setting', [True, False])
def test_a_misspelt_variable_of_a_file_is_refused(tmp_path, name, setting, has_setting):
    path = tmp_path / 'config.py'
    path.write_text(f'{name} = dict(a=1)\n' + f'{setting} = dict(a=2)\n' * has_setting)
    with pytest.raises(UserError, match=f"reads '{name}', which is nearly '{setting}'"):
        read_config(str(path))


def test_variables_of_a_file_are_free(tmp_path):
    path = tmp_path / 'config.py'
    path.write_text(
        "custom_hook = dict(type='A')\ncustom_hooks = [custom_hook]\nwork_dirs = 'x'\n"
        'work_dir = work_dirs\ntest_pipeline = train_pipeline = []\ntrain_dataset = val_data = {}\n'
    )
    assert read_config(str(path)).work_dir == 'x'
