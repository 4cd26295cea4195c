"""Full-size configs have the settings that their READMEs state.

What decides a training is written down here once more: the tables of the READMEs say where each
value comes from.
"""

import pytest
from mmengine.registry import MODELS, init_default_scope
from published_configs import FOLDERS, LEAVES, ROOT, load, rows

pytest.importorskip('mmpretrain')

CLASSES = dict(sop=10181, vehicleid=11817, inaturalist=5115)
HELD_OUT = dict(sop=1137, vehicleid=1317, inaturalist=575)
RECALL = dict(sop=(1, 10, 100, 1000), vehicleid=(1, 5), inaturalist=(1, 4, 16, 32))
SOPRC = {  # lam1, lam2, largest prior, momentum of v
    'sop': (1, 5, 0.01, 0.1),
    'vehicleid': (5, 25, 0.1, 0.1),
    'inaturalist': (1, 5, 0.1, 0.001),
}
OTHERS = ('smooth-ap', 'listwise-ap', 'blackbox-ap', 'auc', 'contrastive')
OTHERS += ('triplet', 'multi-similarity', 'fast-ap', 'xbm')
RHO = {
    'cifar10': 0.2,
    'cifar100': 0.4,
    'cifar10-lt': 0.4,
    'cifar100-lt': 0.4,
    'imagenet100': 0.2,
    'inaturalist': 0.3,
}
RETRIEVAL = {}
for data in CLASSES:
    plan = rows(ROOT / 'tools/research/papers/soprc/losses.yaml', f'{data}_code')
    RETRIEVAL |= {(name.replace('_', '-'), data): row for name, row in plan.items()}
    plan = rows(ROOT / 'tools/research/papers/stable_ap/table2.yaml', data)
    RETRIEVAL['stable-ap', data] = plan['stable_ap']


def read(path, options=None):
    cfg = load(path, options)
    init_default_scope(cfg.default_scope)
    return cfg


def hooks_of(cfg):
    return [hook.type.removeprefix('mmrank.') for hook in cfg.custom_hooks]


def test_the_tables_are_whole_and_cosines_need_no_settings():
    """No config of retrieval sets a margin, a range or a penalty of its loss."""
    every = ('stable-ap', 'soprc', *OTHERS)
    assert set(RETRIEVAL) == {(name, data) for name in every for data in CLASSES}
    paths = [*LEAVES, FOLDERS / 'tutorials/retrieval.py']
    heads = [load(path).get('model', {}).get('head', {}) for path in paths]
    losses = [x.loss for x in heads if x.get('type') == 'mmrank.RetrievalHead' and 'loss' in x]
    assert len(losses) > 5
    for loss in losses:
        assert not {'tau', 'score_range', 'score_penalty'} & loss.keys(), loss


@pytest.mark.parametrize(('name', 'data'), RETRIEVAL)
def test_retrieval(name, data):
    cfg = read(*RETRIEVAL[name, data])
    assert cfg.model.head.num_classes == CLASSES[data]
    for part in (cfg.train_dataloader, cfg.val_dataloader):
        assert part.dataset.num_val_classes == HELD_OUT[data]
    assert cfg.train_dataloader.dataset.split == 'train'
    assert cfg.val_dataloader.dataset.split == 'val'
    assert tuple(cfg.test_evaluator.recall_at) == RECALL[data]
    optimizer = cfg.optim_wrapper.optimizer
    if name == 'stable-ap':
        assert (optimizer.type, optimizer.momentum, optimizer.s) == ('mmrank.SUM', 0.9, 1.0)
    elif name == 'soprc' or name.startswith('auc'):
        assert (optimizer.type, optimizer.nesterov) == ('SGD', True)
    else:
        assert optimizer.type == 'Adam'
    if name in OTHERS:
        return
    head = cfg.model.head
    loss = MODELS.build(dict(head.loss, num_classes=head.num_classes))
    assert loss.scope == 'global'
    if name == 'stable-ap':
        loss.expect_cosines()  # as the head asks
        assert (loss.rho, loss.weights) == ('auto', 'normalised')
        assert (loss.reduction, loss.mean_positive.mode) == ('sum', 'exact')
        assert loss.mean_positive.momentum == 0.01
        assert (loss.a, loss.t, loss.score_penalty) == (0.1, 2.0, 0.0)
        assert (loss.surrogate.tau, loss.bound) == (0.3, 1 + 4 / 0.3)
        assert 'PreviousWeightsHook' in hooks_of(cfg)
        return
    lam1, lam2, prior, beta = SOPRC[data]
    assert (loss.lam1, loss.lam2) == (lam1, lam2)
    assert loss.per_batch  # semi_variance='batch'
    assert loss.prior.from_counts
    assert loss.prior.maximum == prior
    assert loss.score_vector.momentum == beta
    assert loss.score_vector.vector.size(1) == 100
    assert (loss.surrogate.tau, loss.tau2) == (0.1, 0.001)
    assert 'ClassCountsHook' in hooks_of(cfg)


@pytest.mark.parametrize('name', ['cifar10-lt', 'cifar100-lt', 'chest-xray'])
def test_long_tail(name):
    plan = rows(ROOT / 'tools/research/papers/stable_ap/table6.yaml', name)
    cfg = read(*plan['stable_ap'])
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.momentum) == ('mmrank.SUM', 0.9)
    assert optimizer.s == 0.0
    head = cfg.model.head
    loss = MODELS.build(dict(head.loss, num_classes=head.num_classes))
    assert (loss.rho, loss.reduction) == ('auto', 'sum')
    assert loss.mean_positive.mode == 'exact'
    assert loss.mean_positive.momentum == 0.01
    assert loss.activation == 'sigmoid'
    assert 'PreviousWeightsHook' in hooks_of(cfg)


def test_isogclr_is_that_of_the_plan(monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = ROOT / 'tools/research/papers/isogclr/unimodal.yaml'
    row = read(*rows(plan, 'cifar10_400e')['isogclr'])
    own = read(FOLDERS / 'isogclr/r18_isogclr_128-400e_cifar10.py')
    assert {**row.to_dict(), 'auto_scale_lr': own.auto_scale_lr} == own.to_dict()


@pytest.mark.parametrize(('data', 'rho'), RHO.items())
def test_isogclr(data, rho, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = ROOT / 'tools/research/papers/isogclr/temperatures.yaml'
    loss = MODELS.build(dict(read(*rows(plan, f'tau_{data}')['isogclr-0.7']).model.loss))
    state, step = loss.temperature, loss.temperature.step
    assert (loss.rho, state.beta0, step.beta1) == (rho, 0.9, 0.5)
    assert (step.eta, step.gradient_clip) == (0.03, 3.0)
    assert (step.tau0, step.tau_max) == (0.05, 1.0)
    assert state.tau.unique().tolist() == pytest.approx([0.7])
    # Of images and texts.
    path = FOLDERS / 'clip/r50-distilbert_isogclr_2xb256-30e_cc3m.py'
    loss = MODELS.build(dict(read(path).model.head.loss, num_samples=4))
    for state in loss.states():
        step = state.step
        assert (loss.rho, state.beta0, step.beta1) == (6.0, 0.8, 0.5)
        assert (step.eta, step.gradient_clip) == (1e-5, 5.0)
        assert (step.tau0, step.tau_max) == (0.005, 0.05)
        assert state.tau.unique().tolist() == pytest.approx([0.01])


def test_detector():
    pytest.importorskip('mmdet')
    folder = FOLDERS / 'stable_ap'
    cfg = read(folder / 'retinanet_r50_fpn_atss_stable-ap_4xb8-512-100e_coco.py')
    settings = dict(cfg.model.bbox_head.loss_cls)
    loss = MODELS.build(dict(settings, type='mmrank.StableAPLoss'))
    assert (loss.rho, loss.mode) == ('auto', 'flatten')
    assert (loss.mean_positive.mode, loss.mean_positive.momentum) == ('exact', 0.01)
    assert (loss.a, loss.t, loss.score_penalty) == (0.1, 2.0, 0.001)
    assert cfg.model.bbox_head.loss_bbox.loss_weight == 2.0
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.lr, optimizer.momentum, optimizer.s) == (0.008, 0.9, 0)
    assert 'PreviousWeightsHook' in hooks_of(cfg)
