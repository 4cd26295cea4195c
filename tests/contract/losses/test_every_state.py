"""What every state keeps to: resume, dtypes, settings that are refused, and outliers."""

import io
import math
import warnings

import pytest
import torch
from mmengine.runner.checkpoint import load_state_dict as mmengine_load
from subjects import temperature
from torch import nn
from torch.utils.checkpoint import checkpoint

from mmrank import state
from mmrank.errors import UserError
from mmrank.losses.auc.soap import SampleRanks
from mmrank.state import (
    CappedImbalance,
    CrossBatchMemory,
    MeanPositiveScore,
    RunningMean,
    SampleLogMean,
    ScoreSpread,
    ScoreVector,
    SelfBalance,
)

CPU = torch.device('cpu')


def lists(g):
    return torch.randn(3, 5, generator=g), torch.rand(3, 5, generator=g) > 0.3


def visit(state, g):
    ids = torch.randperm(9, generator=g)[:4]
    entries = state.fetch(ids, CPU)
    news = torch.randn(len(entries) and min(len(entries), 2), 4, generator=g)
    state.update(ids, news)
    return entries


def ranks(state, g):
    entries = state.index_of(torch.randperm(9, generator=g)[:4], CPU)
    batch = torch.rand(2, *entries.shape, generator=g) + 0.1
    state.update(entries, batch, torch.rand(entries.shape, generator=g) > 0.3)
    return state.step(entries, batch)


def enqueue(state, g):
    ids = torch.randint(99, (4,), generator=g)
    state.enqueue(torch.randn(4, 3, generator=g), ids % 5, ids)
    return state.entries().embeddings


OTHER_SET = 'samples, but num_samples=.*of another training set'
#: How a state is made, with ``size`` of the data set or of the classes, and fed a batch. The last
#: is the key that a state of another size is refused by.
STATES = {
    'RunningMean': (RunningMean, lambda s, g: s.update(*lists(g)), 'mean'),
    'MeanPositiveScore': (
        lambda size: MeanPositiveScore(size, 0.1, score_range=(-3.0, 3.0)),
        lambda s, g: s.update(*lists(g)),
        'mean',
    ),
    'CappedImbalance': (
        CappedImbalance,
        lambda s, g: s.rho(torch.rand(3, generator=g), torch.full((3,), 9.0), torch.ones(3) > 0),
        'mean',
    ),
    'ScoreSpread': (
        ScoreSpread,
        lambda s, g: s.average(s.log_spreads(*lists(g)), torch.ones(3) > 0),
        'mean',
    ),
    'SelfBalance': (
        lambda size: SelfBalance(period=2),
        lambda s, g: s.update(*torch.rand(2, generator=g)),
        None,
    ),
    'ScoreVector': (lambda size: ScoreVector(size, 7), lambda s, g: s.update(lists(g)), 'vector'),
    'SampleLogMean': (lambda size: SampleLogMean(3 * size), visit, '9 ' + OTHER_SET),
    'SampleTemperature': (
        lambda size: temperature(3 * size, eta=0.1),
        visit,
        'state.log_s .* 9 ' + OTHER_SET,
    ),
    'SampleRanks': (lambda size: SampleRanks(3 * size, 2), ranks, '18 ' + OTHER_SET),
    'CrossBatchMemory': (lambda size: CrossBatchMemory(2 * size, 3), enqueue, 'embeddings'),
}
every_state = pytest.mark.parametrize('name', STATES)


class Model(nn.Module):
    def __init__(self, name, size=3):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        make, self.feed, _ = STATES[name]
        self.state = make(size)

    def step(self, seed):
        return self.feed(self.state, torch.Generator().manual_seed(seed))


def trained(name):
    model = Model(name)
    for seed in range(3):
        model.step(seed)
    return model


def saved(model):
    return {k: v.clone() for k, v in model.state.state_dict().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        assert torch.equal(value, other[key]), key
        assert value.dtype == other[key].dtype, key


@every_state
@pytest.mark.parametrize('load', [nn.Module.load_state_dict, mmengine_load])
def test_resumes_bit_for_bit(name, load):
    model, resumed = trained(name), Model(name)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    load(resumed, torch.load(file, weights_only=True))
    assert_equal(saved(resumed), saved(model))
    assert torch.equal(resumed.step(7), model.step(7))
    assert_equal(saved(resumed), saved(model))


@every_state
@pytest.mark.parametrize('load', [nn.Module.load_state_dict, mmengine_load])
def test_state_of_another_size_is_refused(name, load):
    key = STATES[name][2]
    for size in (2, 4) if key is not None else ():
        with pytest.raises(ValueError, match=key):
            load(Model(name, size), trained(name).state_dict())


@every_state
def test_averaged_models_have_it(name):
    """Ultralytics, LibreYOLO, lightly-train and DEIM average what is floating alone."""
    assert all(x.is_floating_point() for x in Model(name).state.buffers())


@every_state
def test_casts_do_not_round_it(name):
    model = trained(name)
    before = saved(model)
    assert_equal(saved(model.half()), before)
    assert_equal(saved(model.bfloat16()), before)
    assert all(x.device.type == 'meta' for x in model.to('meta').state.buffers())


@every_state
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float64])
def test_the_default_dtype_leaves_it(name, dtype):
    expected = saved(trained(name))
    torch.set_default_dtype(dtype)
    try:
        model = Model(name)
    finally:
        torch.set_default_dtype(torch.float32)
    for seed in range(3):
        model.step(seed)
    assert_equal(saved(model), expected)


@pytest.mark.parametrize('dtype', [None, torch.bfloat16])
def test_within_a_model_of_transformers(dtype, tmp_path):
    transformers = pytest.importorskip('transformers')

    class Pretrained(transformers.PreTrainedModel):
        config_class = transformers.PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.models = nn.ModuleDict({name: Model(name) for name in STATES})
            self.post_init()

    model = Pretrained(transformers.PretrainedConfig())
    for part in model.models.values():
        part.step(0)
    model.save_pretrained(tmp_path)
    loaded = Pretrained.from_pretrained(tmp_path, dtype=dtype)
    for name, part in model.models.items():
        assert_equal(saved(loaded.models[name]), saved(part))


@every_state
@pytest.mark.parametrize('guard', [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_evaluation_leaves_it(name, guard):
    """A value without gradients is that of ``eval()``; with them the state moves in training."""
    model, other = trained(name), trained(name)
    before = saved(model)
    value = model.eval().step(8)
    assert_equal(saved(model), before)
    with guard():
        found = other.step(8)
    moved = any(not torch.equal(x, before[k]) for k, x in saved(other).items())
    assert moved == (guard is torch.enable_grad)
    if not moved:
        assert torch.equal(found, value)


@every_state
def test_a_transform_has_no_state(name):
    """Within ``torch.func`` a state would keep tensors of the transform."""
    model = trained(name)
    before = saved(model)

    def value(x):
        return (x + model.step(8).double().nan_to_num().sum()).sum()

    with pytest.raises(UserError, match='torch.func.*Fix: loss.eval'):
        torch.func.grad(value)(torch.ones(2))
    assert_equal(saved(model), before)


@every_state
@pytest.mark.parametrize('use_reentrant', [True, False])
def test_a_recomputed_forward_counts_once(name, use_reentrant):
    once, twice = trained(name), trained(name)
    once.step(9)

    def forward(x):
        twice.step(9)
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    checkpoint(forward, x, use_reentrant=use_reentrant).sum().backward()
    assert_equal(saved(twice), saved(once))


#: States with a row for each class.
of_classes = pytest.mark.parametrize('name', ['MeanPositiveScore', 'RunningMean', 'ScoreVector'])


@of_classes
@pytest.mark.parametrize(
    ('rows', 'error', 'message'),
    [
        ([0, 3], ValueError, r'from 0 to 3, but .* \[0, 3\).*Fix: num_classes='),
        ([-1, 0], ValueError, r'from -1 to 0, but .* \[0, 3\).*Fix: num_classes='),
        ([0], ValueError, r'(rows|list_classes) must have shape \(2,\)'),
        ([0.0, 1.0], TypeError, '(rows|list_classes) must be integers'),
    ],
)
def test_rows_that_do_not_fit_are_named(name, rows, error, message):
    state = STATES[name][0](3)
    before = {k: v.clone() for k, v in state.state_dict().items()}
    batch = torch.rand(2, 1), torch.ones(2, 1).bool()
    batch = [batch] if name == 'ScoreVector' else batch
    with pytest.raises(error, match=message):
        state.update(*batch, rows=torch.tensor(rows))
    assert_equal(dict(state.state_dict()), before)


#: State, its settings, and what the error says.
VALUES = [
    ('ClassPrior', dict(prior=0.0), r'prior must be in \(0, 1\)'),
    ('ClassPrior', dict(prior=[0.1, 1.0], size=2), r'prior must be in \(0, 1\)'),
    ('ClassPrior', dict(prior=[0.1, 0.2], size=3), 'prior holds 2 values, but num_classes=3'),
    ('ClassPrior', dict(prior='counts'), 'requires num_classes'),
    ('ClassPrior', dict(prior='data', size=3), "prior='data' is unknown"),
    ('ClassPrior', dict(prior=0.1, maximum=0.1), 'set prior to that number'),
    ('ClassPrior', dict(prior='counts', size=3, maximum=1.0), 'max_prior must be in'),
    ('CrossBatchMemory', dict(size=0, dim=2), 'size'),
    ('CrossBatchMemory', dict(size=2, dim=2.0), 'dim'),
    ('CrossBatchMemory', dict(size=2, dim=2, start_iter=-1), 'start_iter'),
    ('LabelCounts', dict(num_classes=1, positives=[20]), 'leaves a class without negatives'),
    ('MeanPositiveScore', dict(size=0), 'size must be'),
    ('MeanPositiveScore', dict(momentum=0.0), 'momentum must be'),
    ('MeanPositiveScore', dict(momentum=1.5), 'momentum must be'),
    ('MeanPositiveScore', dict(mode='fast'), "mode='fast' is unknown"),
    ('MeanPositiveScore', dict(mode='fixed'), "mean_mode='fixed' is unknown. Fix"),
    ('MeanPositiveScore', dict(mode=math.nan), 'mean_mode=nan must be finite. Fix'),
    ('ScoreVector', dict(size=0), 'size must be'),
    ('ScoreVector', dict(length=1.5), 'length must be'),
    ('ScoreVector', dict(momentum=0.0), 'momentum must be'),
    ('ScoreVector', dict(mode='plain'), "mode='plain' is unknown"),
    ('ScoreVector', dict(score_range=(1.0, -1.0)), 'score_range must be'),
    ('SelfBalance', dict(period=0), 'period'),
]


@pytest.mark.parametrize(('name', 'settings', 'message'), VALUES)
def test_a_value_is_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        getattr(state, name)(**settings)


RANGE = (-5.0, 5.0)


def scores(*values):
    x = torch.tensor([values], dtype=torch.float64)
    return x, torch.ones_like(x, dtype=torch.bool)


def tracked(mode='plain', size=1, **kwargs):
    state = MeanPositiveScore(size, 0.01, mode, score_range=RANGE, **kwargs)
    for _ in range(3):
        previous(state, 1.0)
        state.update(*scores(1.0, 2.0))
    return state


def previous(state, mean):
    """What the batch had under the weights before, for mode 'exact'."""
    if state.mode == 'exact':
        with state.probing():
            state.update(*scores(mean))


@pytest.mark.parametrize('broken', [1e6, -1e6, 1e38, 1e39, 1e300])
@pytest.mark.parametrize('mode', ['plain', 'exact'])
def test_an_outlier_is_forgotten_at_once(mode, broken):
    state, other = tracked(mode), tracked(mode)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        previous(state, -broken)
        state.update(*scores(broken, broken))
    # By 0.01 times the width of the range and the size of the mean at most.
    assert (state.mean - other.mean).abs() <= 0.01 * (10 + 2 * 1.5)
    before = state.mean.clone()
    previous(state, 1.5)
    state.update(*scores(1.5))
    assert state.mean.isfinite()
    assert (state.mean - before).abs() <= 0.01 * 1.5


@pytest.mark.parametrize('far', [-300.0, 300.0])
def test_scores_far_outside_of_the_range_are_followed(far):
    """A range that was declared too narrow costs nothing but a warning."""
    state = MeanPositiveScore(1, 0.1, score_range=RANGE)
    with pytest.warns(UserWarning, match='score_range'):
        state.update(*scores(far, far))
    for _ in range(200):
        state.update(*scores(far, far))
    torch.testing.assert_close(state.mean, torch.tensor([far]))
    for _ in range(200):
        state.update(*scores(1.0))
    torch.testing.assert_close(state.mean, torch.ones(1))


@pytest.mark.parametrize('broken', [1e6, 1e38, 1e39])
def test_a_score_vector_forgets_an_outlier(broken):
    state, other = (ScoreVector(1, 4, 0.1, RANGE) for _ in range(2))
    ordinary, mask = scores(0.5, 1.0, 1.5, 2.0)
    for x in (state, other):
        x.update((ordinary, mask))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        state.update((broken * ordinary, mask))
    # What does not fit into float32 is left out without a word, as before.
    assert len(caught) == (broken < 1e39)
    assert (state.vector - other.vector).abs().max() <= 0.1 * (100 + 2 * 2)
    for _ in range(60):
        state.update((ordinary, mask))
    torch.testing.assert_close(state.vector, other.vector, atol=0.1, rtol=0)
