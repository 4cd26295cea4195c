"""The published sets of the SOPRC paper have the text's settings, and train their first steps."""

import cv2
import numpy as np
import pytest
import yaml
from made_up_data import write_retrieval
from published_configs import ROOT, load, rows

pytest.importorskip('mmpretrain')

from mmengine.registry import MODELS, init_default_scope
from starting_plans import start

PLANS = ROOT / 'tools/research/papers/soprc'
#: Learning rate, steps and iterations of the text, and the classes of the training split.
TEXT = {
    'sop': (0.01, [15000, 30000], 50000, 10181),
    'vehicleid': (0.001, [40000, 80000], 100000, 11817),
    'inaturalist': (0.001, [80000, 110000], 130000, 5115),
    'sop_trainval': (0.01, [15000, 30000], 50000, 11318),
    'vehicleid_trainval': (0.001, [40000, 80000], 100000, 13134),
    'inaturalist_trainval': (0.001, [80000, 110000], 130000, 5690),
}
SETS = [
    (plan, name)
    for plan in ('losses', 'ablation', 'batch_sizes')
    for name in yaml.safe_load((PLANS / f'{plan}.yaml').read_text('utf-8'))['sets']
    if not name.startswith('small')
]
#: All training classes, of the trainval splits too.
CLASSES = {'Stanford_Online_Products': 11318, 'VehicleID': 13134, 'inaturalist2018': 5690}
#: A step of the real 224 images takes minutes on a CPU.
SMALLER = {
    'train_dataloader.batch_size': '8',
    'train_dataloader.sampler.batch_size': '8',
    'model.image_encoder.0.init_cfg': 'None',
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize('name', TEXT)
def test_soprc_has_the_settings_of_the_text(name):
    found = rows(PLANS / 'losses.yaml', name)
    assert len(found) == (6 if name.endswith('trainval') else 10)
    for method, row in found.items():
        cfg = load(*row)
        rate, steps, iterations, classes = TEXT[name]
        optimizer = cfg.optim_wrapper.optimizer
        expected = ('SGD', rate) if method == 'soprc' else ('Adam', 1e-5)
        assert (optimizer.type, optimizer.lr) == expected
        assert optimizer.weight_decay == 4e-4
        schedule = cfg.param_scheduler[0]
        assert (schedule.milestones, schedule.gamma) == (steps, 0.1)
        assert cfg.train_cfg.max_iters == iterations
        assert cfg.model.head.num_classes == classes
        assert cfg.train_dataloader.batch_size == 224
    loss = cfg.model.head.loss
    assert (loss.momentum, loss.tau1, loss.tau2, loss.vector_length) == (0.001, 0.1, 0.001, 100)


@pytest.mark.parametrize(('plan', 'name'), SETS)
def test_every_row_builds(plan, name):
    pytest.importorskip('pytorch_metric_learning')
    for row in rows(PLANS / f'{plan}.yaml', name).values():
        cfg = load(*row)
        assert '_delete_' not in str(cfg.to_dict())
        init_default_scope(cfg.default_scope)
        MODELS.build(cfg.model.head)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The three data sets; all their images are one file."""
    root = tmp_path_factory.mktemp('retrieval')
    pixels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    cv2.imwrite(str(root / 'image.jpg'), pixels)
    write_retrieval(root / 'data', root / 'image.jpg', CLASSES)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(('plan', 'name'), SETS)
def test_set_starts(plan, name, folder, monkeypatch):
    method = {'losses': 'soprc', 'ablation': 'row_4', 'batch_sizes': 'batch_56'}[plan]
    start(str(PLANS / f'{plan}.yaml'), name, method, folder, monkeypatch, **SMALLER)
