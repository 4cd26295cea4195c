"""Names of settings that no one reads, in a config file and on the command line."""

import pytest
from mmengine.config import Config
from published_configs import LEAVES, load

from mmrank.apis.config_names import check_file_names, check_option_names
from mmrank.apis.entry_point import apply_options, read_config
from mmrank.errors import UserError

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
