"""Full-size configs have the settings that their READMEs state.

What decides a training is written down here once more: the tables of the READMEs say where each
value comes from. Rows of the papers' plans: tools/research/tests/test_starts.py.
"""

import pytest
from mmengine.registry import MODELS, init_default_scope
from published_configs import FOLDERS, LEAVES, ROOT, load, rows

pytest.importorskip('mmpretrain')

RHO = {
    'cifar10': 0.2,
    'cifar100': 0.4,
    'cifar10-lt': 0.4,
    'cifar100-lt': 0.4,
    'imagenet100': 0.2,
    'inaturalist': 0.3,
}


def read(path, options=None):
    cfg = load(path, options)
    init_default_scope(cfg.default_scope)
    return cfg


def hooks_of(cfg):
    return [hook.type.removeprefix('mmrank.') for hook in cfg.custom_hooks]


def test_cosines_need_no_settings():
    """No config of retrieval sets a margin, a range or a penalty of its loss."""
    paths = [*LEAVES, FOLDERS / 'tutorials/retrieval.py']
    heads = [load(path).get('model', {}).get('head', {}) for path in paths]
    losses = [x.loss for x in heads if x.get('type') == 'mmrank.RetrievalHead' and 'loss' in x]
    assert len(losses) > 5
    for loss in losses:
        assert not {'tau', 'score_range', 'score_penalty'} & loss.keys(), loss


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
