"""The sets of the papers' plans have the settings of the text, and train their first steps.

The data are made up, in the layout of the real ones. Networks and batches are smaller where a step
takes a CPU minutes; cifar10_400e of iSogCLR has the paper's.
"""

import functools
from fnmatch import fnmatchcase

import cv2
import numpy as np
import pytest
import torch
import yaml
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.utils import import_modules_from_strings
from published_configs import ROOT, load, rows, without_downloads

pytest.importorskip('mmpretrain')

from made_up_data import WRITERS

from mmrank.runners.build import build_runner
from mmrank.runners.config import set_collate

PLANS = ROOT / 'tools/research/papers'
BATCH = {'train_dataloader.batch_size': '8', 'test_dataloader.batch_size': '8'}
CLASSES_OF_FOUR = {'train_dataloader.batch_size': '8', 'train_dataloader.sampler.batch_size': '8'}
PAIRS = {
    'train_dataloader.batch_size': '8',
    'model.image_encoder.0.init_cfg': 'None',
    'model.text_encoder._delete_': 'True',
    'model.text_encoder.type': 'mmrank.TextTransformer',
    'model.text_encoder.channels': '16',
    'model.text_encoder.num_layers': '1',
}
COUNTED = {**PAIRS, 'model.head.loss.num_samples': '16'}
NARROW = {**BATCH, 'model.neck.hid_channels': '16', 'model.neck.out_channels': '16'}
SOPRC = {**CLASSES_OF_FOUR, 'model.image_encoder.0.init_cfg': 'None'}
STABLE_AP = {
    **CLASSES_OF_FOUR,
    'train_dataloader.dataset.num_val_classes': '2',
    'model.head.num_classes': '4',
    'model.image_encoder.0.backbone.init_cfg': 'None',
}
#: The row that a set starts, and what is smaller; the first that matches holds.
STARTS = {
    'in_batch/losses/[em]*_logistic': ('sogram_1e-3', {}),
    'in_batch/losses/*': ('unbiased_1e-3', {}),
    'in_batch/full_gradient/*': ('pos_neg_1e-3', {}),
    'isogclr/unimodal/cifar10_400e': ('isogclr', {}),
    'isogclr/unimodal/cifar10_800e': ('sogclr', NARROW),
    'isogclr/unimodal/cifar100_400e': ('barlow_twins', NARROW),
    'isogclr/unimodal/cifar100_800e': ('vicreg', NARROW),
    'isogclr/unimodal/cifar10-lt_800e': ('flatclr', NARROW),
    'isogclr/unimodal/cifar100-lt_800e': ('simco', NARROW),
    'isogclr/unimodal/imagenet100_200e': ('spectral', NARROW),
    'isogclr/unimodal/inaturalist_200e': ('simclr', NARROW),
    'isogclr/unimodal/*': ('isogclr', NARROW),
    'isogclr/temperatures/tau-net_cifar10': ('tau_simclr', BATCH),
    'isogclr/temperatures/tau_cifar100': ('sogclr-0.3', NARROW),
    'isogclr/temperatures/rho*': ('rho-0.3', NARROW),
    'isogclr/temperatures/*': ('isogclr-0.7', NARROW),
    'isogclr/captions/*_temperatures': ('fixed-0.2', PAIRS),
    'isogclr/captions/*_individual': ('individual', COUNTED),
    'isogclr/captions/*': ('isogclr', COUNTED),
    'soprc/losses/*': ('soprc', SOPRC),
    'soprc/ablation/*': ('row_4', SOPRC),
    'soprc/batch_sizes/*': ('batch_56', SOPRC),
    'stable_ap/table2/*': ('stable_ap', STABLE_AP),
    'stable_ap/table4/*': ('row_5', STABLE_AP),
    'stable_ap/table5/*': (
        'stable_ap',
        {'train_dataloader.batch_size': '2', 'model.backbone.init_cfg': 'None'},
    ),
    'stable_ap/table6/cifar*': ('stable_ap', {}),
    'stable_ap/table6/*': (
        'stable_ap',
        {'train_dataloader.batch_size': '8', 'model.backbone.init_cfg': 'None'},
    ),
}
#: Iterations, steps and their factor, and the classes of the training split.
SCHEDULES = {
    'soprc/losses/sop': (50000, [15000, 30000], 0.1, 10181),
    'soprc/losses/vehicleid': (100000, [40000, 80000], 0.1, 11817),
    'soprc/losses/inaturalist': (130000, [80000, 110000], 0.1, 5115),
    'soprc/losses/sop_trainval': (50000, [15000, 30000], 0.1, 11318),
    'soprc/losses/vehicleid_trainval': (100000, [40000, 80000], 0.1, 13134),
    'soprc/losses/inaturalist_trainval': (130000, [80000, 110000], 0.1, 5690),
    'stable_ap/table[24]/sop': (100000, [60000, 80000], 0.1, 10181),
    'stable_ap/table[24]/vehicleid': (160000, [120000, 150000], 0.3, 11817),
    'stable_ap/table[24]/inaturalist': (270000, [150000, 220000], 0.3, 5115),
}
#: Classes to train and to validate on, and the ranks at which a search is measured.
SEARCHES = {
    '/sop': (10181, 1137, (1, 10, 100, 1000)),
    '/vehicleid': (11817, 1317, (1, 5)),
    '/inaturalist': (5115, 575, (1, 4, 16, 32)),
}
#: SOPRC by the authors' code: lam1, lam2, largest prior, momentum of v.
SOPRC_OF_CODE = {
    'soprc/losses/sop_code': (1, 5, 0.01, 0.1),
    'soprc/losses/vehicleid_code': (5, 25, 0.1, 0.1),
    'soprc/losses/inaturalist_code': (1, 5, 0.1, 0.001),
}
SETS = [
    f'{path.parent.name}/{path.stem}/{name}'
    for path in sorted(PLANS.glob('*/*.yaml'))
    for name in yaml.safe_load(path.read_text('utf-8'))['sets']
    if path.parent.name == 'in_batch' or not name.startswith('small')
]


def first_match(table, name):
    """What a table says of a set; None for a set that it does not name."""
    return next((found for pattern, found in table.items() if fnmatchcase(name, pattern)), None)


def rows_of(name):
    """Config and overrides of each row of a set."""
    plan, _, set_name = name.rpartition('/')
    return rows(PLANS / f'{plan}.yaml', set_name)


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def loss_of(head):
    """The loss as the head of a config builds it."""
    return MODELS.build(dict(head.loss, num_classes=head.num_classes))


def check_stable_ap(head, is_search):
    """The settings of the paper; those of a search are for cosines, others for sigmoids."""
    loss = loss_of(head)
    assert (loss.rho, loss.weights, loss.reduction) == ('auto', 'normalised', 'sum')
    assert (loss.mean_positive.mode, loss.mean_positive.momentum) == ('exact', 0.01)
    if not is_search:
        assert loss.activation == 'sigmoid'
        return
    loss.expect_cosines()  # as the head asks
    assert loss.scope == 'global'
    assert (loss.a, loss.t, loss.score_penalty) == (0.1, 2.0, 0.0)
    assert (loss.surrogate.tau, loss.bound) == (0.3, 1 + 4 / 0.3)


def check_soprc_of_code(name, cfg):
    loss = loss_of(cfg.model.head)
    found = (loss.lam1, loss.lam2, loss.prior.maximum, loss.score_vector.momentum)
    assert found == SOPRC_OF_CODE[name]
    assert loss.scope == 'global'
    assert loss.per_batch  # semi_variance='batch'
    assert loss.prior.from_counts
    assert loss.score_vector.vector.size(1) == 100
    assert (loss.surrogate.tau, loss.tau2) == (0.1, 0.001)
    assert 'mmrank.ClassCountsHook' in [hook.type for hook in cfg.custom_hooks]


@pytest.mark.parametrize('name', [x for x in SETS if x.startswith(('soprc', 'stable_ap'))])
def test_every_row_builds_and_has_the_settings(name):
    pytest.importorskip('pytorch_metric_learning')
    pytest.importorskip('mmdet')
    paper, plan, _ = name.split('/')
    schedule = first_match(SCHEDULES, name)
    found = rows_of(name)
    if paper == 'soprc' and schedule:
        assert len(found) == (6 if name.endswith('trainval') else 10)
    for row, given in found.items():
        cfg = load(*given)
        assert '_delete_' not in str(cfg.to_dict())
        init_default_scope(cfg.default_scope)
        without_downloads(cfg.model)
        if 'sorter' not in str(cfg.model):  # a file that a GPU makes
            MODELS.build(cfg.model if plan in ('table5', 'table6') else cfg.model.head)
        if schedule:
            policy = cfg.param_scheduler[0]
            values = (cfg.train_cfg.max_iters, policy.milestones, policy.gamma)
            assert (*values, cfg.model.head.num_classes) == schedule
        optimizer = cfg.optim_wrapper.optimizer
        if paper == 'stable_ap' and row not in ('ssd', 'yolov3'):
            s = 0 if plan in ('table5', 'table6') else 1
            assert (optimizer.type, optimizer.momentum, optimizer.s) == ('mmrank.SUM', 0.9, s)
            assert not s or optimizer.weight_decay == 4e-5
        if paper == 'stable_ap' and plan != 'table3':
            is_exact = "'mean_mode': 'exact'" in str(cfg.model)
            hooks = [hook.type for hook in cfg.get('custom_hooks', [])]
            assert is_exact == ('mmrank.PreviousWeightsHook' in hooks), row
        if (name.startswith('stable_ap/table2') or plan == 'table6') and row == 'stable_ap':
            check_stable_ap(cfg.model.head, is_search=plan == 'table2')
        if name in SOPRC_OF_CODE:
            is_ours = row == 'soprc' or row.startswith('auc')
            assert (optimizer.type, optimizer.get('nesterov', False)) == (
                ('SGD', True) if is_ours else ('Adam', False)
            )
            if row == 'soprc':
                check_soprc_of_code(name, cfg)
        search = next((found for data, found in SEARCHES.items() if data in name), None)
        if search and (name in SOPRC_OF_CODE or plan == 'table2'):
            parts = cfg.train_dataloader.dataset, cfg.val_dataloader.dataset
            assert cfg.model.head.num_classes == search[0]
            assert [x.num_val_classes for x in parts] == 2 * [search[1]]
            assert [x.split for x in parts] == ['train', 'val']
            assert tuple(cfg.test_evaluator.recall_at) == search[2]
        if paper == 'soprc' and schedule:
            rate = 0.01 if '/sop' in name else 0.001
            expected = ('SGD', rate) if row == 'soprc' else ('Adam', 1e-5)
            assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == (*expected, 4e-4)
            assert cfg.train_dataloader.batch_size == 224
            if row == 'soprc':
                loss = cfg.model.head.loss
                assert (loss.momentum, loss.tau1, loss.tau2) == (0.001, 0.1, 0.001)
                assert loss.vector_length == 100


@pytest.fixture(scope='module')
def data_of(tmp_path_factory):
    """Gives the folder that holds ``data/...`` of a paper, made once."""
    image = tmp_path_factory.mktemp('image') / 'image.jpg'
    pixels = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    cv2.imwrite(str(image), pixels)

    @functools.cache
    def written(paper):
        folder = tmp_path_factory.mktemp(paper)
        WRITERS[paper](folder / 'data', image)
        return folder

    return written


@pytest.mark.slow
@pytest.mark.parametrize('name', [x for x in SETS if 'table3' not in x])
def test_set_starts(name, data_of, monkeypatch):
    paper, plan, _ = name.split('/')
    row, smaller = first_match(STARTS, name)
    path, options = rows_of(name)[row]
    cfg = load(path, {**options, **smaller})
    import_modules_from_strings(**cfg.get('custom_imports', dict(imports=None)))
    set_collate(cfg)
    folder = data_of(paper)
    monkeypatch.chdir(folder)
    cfg.work_dir = str(folder / 'out')
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=1000)
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    test_data = cfg.get('test_dataloader')
    for stage in ('val', 'test'):
        for part in ('dataloader', 'cfg', 'evaluator'):
            cfg[f'{stage}_{part}'] = None
    cfg.custom_hooks = [x for x in cfg.get('custom_hooks', []) if 'Eval' not in x['type']]
    cfg.launcher = 'none'
    runner = build_runner(cfg)
    runner.train()
    (losses,) = [x for key, x in runner.message_hub.log_scalars.items() if key == 'train/loss']
    assert torch.isfinite(torch.tensor(losses.current()))
    if test_data:
        test_data.update(num_workers=0, persistent_workers=False)
        assert next(iter(Runner.build_dataloader(test_data)))
    if paper == 'in_batch':
        pairs = len(runner.train_dataloader.dataset)
        batch = next(iter(runner.train_dataloader))
        assert len(batch['rows']) == (round(1e-3**0.5 * pairs) if plan == 'losses' else pairs)
