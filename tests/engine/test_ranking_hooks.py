"""The hooks inside a real mmengine Runner, beside its own."""

import copy
import logging
from types import SimpleNamespace

import pytest
import torch
from labelled import LabelledItems
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmengine.hooks import Hook
from resume_run import NoisyDataset, NoisyModel
from tiny_runner import stand_in, train

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.labels import label_pairs
from mmrank.engine.hooks import (
    ClassCountsHook,
    CosineBeta0Hook,
    DeferredReweightingHook,
    PairCountsHook,
    RankingMonitorHook,
)
from mmrank.losses import (
    ClassBalancedCELoss,
    InBatchLoss,
    ISogCLRLoss,
    LDAMLoss,
    SogCLRLoss,
    SOPRCLoss,
    StableAPLoss,
    SumLoss,
)
from mmrank.registry import MODELS


class _Net(NoisyModel):
    """Remembers the means that its loss had."""

    def __init__(self, **settings):
        super().__init__(dict(type='mmrank.StableAPLoss', rho=1.0, **settings))
        self.means = []

    def forward(self, inputs, data_samples, mode):
        result = super().forward(inputs, data_samples, mode)
        if torch.is_grad_enabled():
            self.means.append(self.loss.mean_positive.mean.item())
        return result


class _Recorder(Hook):
    """Scores each batch under both weights, by hand."""

    priority = 'VERY_LOW'

    def __init__(self):
        self.previous, self.pairs = None, []

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        model = runner.model
        before = self.previous or copy.deepcopy(model.state_dict())
        self.pairs.append(
            tuple(self._mean(model, w, data_batch) for w in (model.state_dict(), before))
        )
        self.previous = copy.deepcopy(model.state_dict())

    @staticmethod
    def _mean(model, weights, batch):
        net = copy.deepcopy(model.net)
        net.load_state_dict({k[4:]: v for k, v in weights.items() if k.startswith('net.')})
        rng = torch.get_rng_state()
        with torch.no_grad():
            scores = net(batch['inputs']).squeeze(1)
        torch.set_rng_state(rng)
        return scores[batch['data_samples'] > 0].double().mean().item()


def _run(tmp_path, name, model, hooks, epochs=2, **settings):
    settings.setdefault('optim_wrapper', dict(optimizer=dict(type='mmrank.SUM', lr=0.1)))
    return train(model, tmp_path / name, NoisyDataset(32), epochs, custom_hooks=hooks, **settings)


def _net(seed=3, **kwargs):
    torch.manual_seed(seed)
    return _Net(**kwargs)


@pytest.mark.parametrize('extra', ['plain', 'accumulation', 'ema'])
def test_exact_mode_is_equation_6_with_dropout_and_batch_norm(tmp_path, extra):
    recorder = _Recorder()
    hooks = [dict(type='mmrank.PreviousWeightsHook'), recorder]
    wrapper = dict(optimizer=dict(type='mmrank.SUM', lr=0.1))
    if extra == 'accumulation':
        wrapper['accumulative_counts'] = 2
    if extra == 'ema':
        hooks.append(dict(type='EMAHook', update_buffers=True))
    model = _net(mean_mode='exact', momentum=0.1)
    _run(tmp_path, extra, model, hooks, optim_wrapper=wrapper)
    assert len(recorder.pairs) == len(model.means) == 8
    mu = recorder.pairs[0][0]
    for k, (now, before) in enumerate(recorder.pairs):
        if k:
            mu = 0.9 * mu + 0.1 * now + 0.9 * (now - before)
        assert model.means[k] == pytest.approx(mu, rel=1e-5, abs=1e-5)
    changed = sum(now != before for now, before in recorder.pairs)
    assert changed == (3 if extra == 'accumulation' else 7)


def test_scoring_twice_leaves_no_trace_and_needs_the_hook(tmp_path):
    """With t=0 the loss does not depend on mu, so nothing may differ."""
    plain = _run(tmp_path, 'plain', _net(t=0.0), [])
    hook = dict(type='mmrank.PreviousWeightsHook')
    exact = _run(tmp_path, 'exact', _net(t=0.0, mean_mode='exact'), [hook])
    for name, value in plain.model.net.state_dict().items():
        assert torch.equal(exact.model.net.state_dict()[name], value), name
    with pytest.raises(RuntimeError, match='PreviousWeightsHook'):
        _run(tmp_path, 'x', _net(mean_mode='exact'), [])


def test_monitor_logs_what_the_loss_notes(tmp_path):
    runner = _run(tmp_path, 'log', _net(), [dict(type='mmrank.RankingMonitorHook', interval=2)])
    scalars = runner.message_hub.log_scalars
    for key in ('argument', 'mean_positive', 'risk'):
        values, _ = scalars[f'train/{key}'].data
        assert len(values) == 4
    last = scalars['train/mean_positive'].current()
    assert last == pytest.approx(runner.model.means[-1])
    text = next((tmp_path / 'log').glob('*/vis_data/scalars.json')).read_text()
    assert '"argument"' in text


def watched(loss, steps, patience):
    """What a hook sees of a loss in so many steps."""
    hook = RankingMonitorHook(interval=1)
    hook.PATIENCE = patience
    for k in range(steps):
        hook.after_train_iter(_fake(k, 0.0, loss), k)


def _fake(step, argument, loss=None):
    """A runner with one loss, or with one whose argument is given."""
    if loss is None:
        loss = StableAPLoss()
        loss.diagnostics = {'argument': torch.tensor(argument)}
    hub = SimpleNamespace(update_scalar=lambda *_: None)
    return stand_in(None, loss, message_hub=hub, iter=step)


def _warnings(logged):
    return [x.getMessage() for x in logged if x.levelno >= logging.WARNING]


def test_monitor_warns_once_and_only_when_saturation_lasts(logged):
    hook = RankingMonitorHook(interval=1)
    hook.PATIENCE = 3
    arguments = [19.0] * 9 + [21.0, 21.0, 1.0] + [3300.0] * 6
    for k, argument in enumerate(arguments):
        hook.after_train_iter(_fake(k, argument), k)
    (warning,) = _warnings(logged)
    assert 'argument is 3300' in warning
    assert "rho='auto'" in warning


@pytest.mark.parametrize(
    'loss',
    [dict(type='StableAPLoss'), dict(type='SOPRCLoss', tau1=1.0), dict(type='BlackBoxAPLoss')],
)
def test_monitor_sees_lists_without_a_gradient(logged, loss):
    """Two classes are ranked right beyond the margin, the third is not; a fourth is empty."""
    loss = MODELS.build(
        {**loss, 'type': f'mmrank.{loss["type"]}', 'mode': 'per_class', 'num_classes': 4}
    )
    target = torch.tensor([0, 1, 2, 4, 4])
    scores = torch.zeros(5, 4)
    scores[0, 0] = scores[1, 1] = 50.0
    scores.requires_grad_()
    loss(scores, target).backward()
    assert loss.diagnostics['idle'].item() == pytest.approx(2 / 3)
    assert not scores.grad[3:, :2].any()
    assert scores.grad[3:, 2].all()
    watched(loss, 4, 2)
    (warning,) = [x for x in _warnings(logged) if 'learns from few of its lists' in x]
    assert '67% of those with positives' in warning
    assert "Fix: mode='flatten'" in warning


@pytest.mark.parametrize(('eta', 'warns'), [(0.02, True), (0.001, False)])
def test_monitor_sees_temperatures_that_repeat_their_last_batch(logged, eta, warns):
    """The gain of a visit, 2 eta rho / tau, is 0.96 or 0.05."""
    loss = ISogCLRLoss(num_samples=4, rho=2.4, tau_init=0.1, tau0=0.05, eta=eta).eval()
    loss(torch.randn(4, 3), torch.randn(4, 3), torch.arange(4))
    watched(loss, 6, 3)
    assert len(_warnings(logged)) == warns
    for warning in _warnings(logged):
        assert 'tau_gain = 2 eta rho / tau is 0.96' in warning
        assert 'Fix: eta of ISogCLRLoss' in warning


@pytest.mark.parametrize(
    'loss',
    [
        dict(type='SOPRCLoss', prior=1e-4, tau1=1.0),
        dict(type='SmoothAPLoss', tau=1.0),
        dict(type='SOAPLoss', num_samples=20_000),
        dict(type='StableAPLoss', rho='batch'),
    ],
)
def test_every_saturating_loss_is_seen(logged, loss):
    """20 positives below 20,000 negatives: h is flat in all of them."""
    loss = MODELS.build({**loss, 'type': f'mmrank.{loss["type"]}'})
    scores = torch.randn(20_000)
    target = torch.arange(20_000) < 20
    extra = {}
    if getattr(loss, 'keeps_samples', False):
        extra['sample_idx'] = torch.arange(20_000)
    loss(scores, target, **extra)
    watched(loss, 1, 1)
    (warning,) = [x for x in _warnings(logged) if 'is saturated' in x]
    assert loss.saturation_advice in warning
    # A good ranking is none.
    scores[:20] += 100
    for _ in range(60):
        loss(scores, target, **extra)
    assert loss.diagnostics['argument'] < 20


@pytest.mark.parametrize('name', ['StableAPLoss', 'GradedAPLoss', 'SmoothAPLoss'])
def test_monitor_says_how_to_read_a_loss(name, logged):
    loss = MODELS.build(dict(type=f'mmrank.{name}'))
    RankingMonitorHook().before_train(_fake(0, 0.0, loss))
    RankingMonitorHook().before_train(_fake(0, 0.0, torch.nn.Linear(1, 1)))
    assert [record.getMessage() for record in logged] == [loss.reading_advice]
    advice = 'choose checkpoints by the AP of the validation split'
    assert advice in loss.reading_advice


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_monitor_stops_a_run_that_diverged(value):
    hook = RankingMonitorHook(interval=1)
    with pytest.raises(FloatingPointError, match='argument of 0 is .* at iteration 8'):
        hook.after_train_iter(_fake(7, value), 7)
    with pytest.raises(FloatingPointError, match='the loss is .* at iteration 8'):
        hook.after_train_iter(_fake(7, 1.0), 7, outputs={'loss': torch.tensor(value)})


def labelled(labels, classes, key='gt_label'):
    return LabelledItems([{key: label} for label in labels], classes)


MULTI = labelled([[0, 2], [], [2], [1, 2]], 'abc')
SCORES = labelled([[1, 0, 1], [0, 0, 0], [0, 0, 1.0], [0, 1, 1]], 'abc', 'gt_score')
BINARY = labelled([0, 0, 1, 0, 0], ('rest', 'cat'))


def tell(dataset, *losses, hook=ClassCountsHook):
    hook().before_train(stand_in(dataset, *losses))
    return losses


@pytest.mark.parametrize('dataset', [MULTI, SCORES])
def test_multi_label(dataset):
    ldam, balanced = tell(dataset, LDAMLoss(num_classes=3), ClassBalancedCELoss(num_classes=3))
    expected = [[3, 1], [3, 1], [1, 3]]
    assert ldam.counts.get().tolist() == expected
    assert balanced.counts.get().tolist() == expected
    (soprc,) = tell(dataset, SOPRCLoss(3, 'per_class', prior='counts'))
    assert soprc.prior.of(3, None).tolist() == [0.25, 0.25, 0.75]
    soprc = SOPRCLoss(3, 'per_class', prior='counts')
    tell(dataset, SumLoss([StableAPLoss(), soprc]))
    assert soprc.prior.of(3, None).tolist() == [0.25, 0.25, 0.75]


def test_items_and_classes_through_wrappers():
    twice = RepeatDataset(MULTI, 2)
    # ConcatDataset requires one metainfo.
    binary = labelled([0, 0, 1, 0, 0], 'abc')
    joined = ConcatDataset([binary, SCORES])
    items, classes = label_pairs(twice)
    assert items.tolist() == [0, 0, 2, 3, 3, 4, 4, 6, 7, 7]
    assert classes.tolist() == [0, 2, 2, 1, 2] * 2
    items, classes = label_pairs(joined)
    assert items.tolist() == [0, 1, 2, 3, 4, 5, 5, 7, 8, 8]
    assert classes.tolist() == [0, 0, 1, 0, 0, 0, 2, 2, 1, 2]
    (loss,) = tell(twice, LDAMLoss(num_classes=3))
    assert loss.counts.get().tolist() == [[6, 2], [6, 2], [2, 6]]
    (loss,) = tell(joined, LDAMLoss(num_classes=3))
    assert loss.counts.get().tolist() == [[4, 5], [7, 2], [6, 3]]
    with pytest.raises(TypeError, match='no get_data_info'):
        label_pairs([1, 2])


def test_one_class_takes_label_1_for_its_positives():
    ldam, soprc = tell(BINARY, LDAMLoss(num_classes=1), SOPRCLoss(1, 'per_class', prior='counts'))
    assert ldam.counts.get().tolist() == [[4, 1]]
    assert soprc.prior.of(1, None).tolist() == [0.2]
    with pytest.raises(ValueError, match='has 2 classes, but num_classes=3'):
        tell(BINARY, LDAMLoss(num_classes=3))
    # Losses that do not ask are left alone, and their number of classes is not compared.
    given = LDAMLoss([7, 8])
    soprc = SOPRCLoss(5, 'per_class', prior=0.2)
    tell(BINARY, given, StableAPLoss(5), soprc)
    assert given.counts.get()[:, 1].tolist() == [7, 8]
    assert soprc.prior.prior.tolist() == [0.2]


@pytest.mark.parametrize(
    ('settings', 'equal'),
    [
        (dict(begin=2), 6),
        (dict(begin=4, by_epoch=False), 4),
        (dict(begin=0), 0),
        (dict(begin=9), 12),
    ],
)
def test_reweighting_starts_when_it_should(settings, equal):
    """Of three iterations an epoch."""
    loss = LDAMLoss([3], num_samples=12)
    hook = DeferredReweightingHook(**settings)
    seen = []
    for step in range(12):
        runner = _fake(step, 0.0, loss)
        runner.epoch = step // 3
        hook.before_train_iter(runner, step % 3)
        seen.append(int(loss.reweighting))
    assert seen == [0] * equal + [1] * (12 - equal)


@pytest.mark.parametrize('by_epoch', [True, False])
def test_beta0_follows_half_a_cosine(by_epoch):
    """FastCLIP (2024): 1 at first, halfway the mean, then that of the loss."""
    loss = SogCLRLoss(9, beta0=0.2, bimodal=True)
    hook = CosineBeta0Hook(4, by_epoch)
    runner = SimpleNamespace(model=loss, epoch=0, iter=0)
    hook.before_train(runner)
    for done, expected in ((0, 1.0), (1, 0.88284), (2, 0.6), (4, 0.2), (7, 0.2)):
        # A resumed run begins anywhere; the other counter is not looked at.
        runner.epoch, runner.iter = (done, 99) if by_epoch else (99, done)
        hook.before_train_iter(runner, 0)
        assert [x.beta0 for x in loss.states()] == pytest.approx([expected] * 2, abs=1e-5)
    runner.epoch = runner.iter = 1
    hook.before_train_iter(runner, 0)
    hook.after_train(runner)
    assert [state.beta0 for state in loss.states()] == [0.2, 0.2]
    with pytest.raises(ValueError, match='decay must be'):
        CosineBeta0Hook(0)


def test_every_loss_gets_the_pairs():
    pairs = SimpleNamespace(interactions=Interactions([1, 0, 0], [0, 0, 1], 'ab', 'xy'))
    for loss in tell(pairs, InBatchLoss(), InBatchLoss('in_batch'), hook=PairCountsHook):
        assert loss.counts.row_counts.tolist() == [2, 1]
        assert loss.counts.col_counts.tolist() == [2, 1]
    with pytest.raises(TypeError, match='list has no positive pairs'):
        tell([1, 2], InBatchLoss(), hook=PairCountsHook)
    lonely = SimpleNamespace(interactions=Interactions([1, 0], [0, 0], 'ab', 'xy'))
    with pytest.raises(ValueError, match=r'col_counts\[1\]=0'):
        tell(lonely, InBatchLoss(), hook=PairCountsHook)
