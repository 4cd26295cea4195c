"""Stepwise training, learning-rate search, L-BFGS and the study's cells."""

import json
import math
import os
from itertools import combinations
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from in_batch.search import SearchRule, minimise_by_lbfgs, search_learning_rate, train_until_it_ends
from in_batch.study import chosen_omega, run_cell
from in_batch.training import ExpectedObjective, StepwiseTraining, TwoTowerData
from make_interactions import InteractionsSpec, write_interactions

CONFIG = Path(__file__).parents[4] / 'configs/in_batch/two-tower8_unbiased-logistic_synthetic.py'


@pytest.fixture(scope='module')
def cfg(tmp_path_factory):
    """The synthetic config with small data of its own."""
    root = tmp_path_factory.mktemp('interactions')
    spec = InteractionsSpec(num_users=30, num_items=20, per_user=6)
    write_interactions(root, spec)
    cfg = Config.fromfile(CONFIG)
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].dataset.data_root = str(root)
    cfg.model.left.num_entities = 30
    cfg.model.right.num_entities = 20
    cfg.model.top_k = 5
    cfg.val_evaluator.k = (1, 5)
    cfg.train_dataloader.batch_size = 32
    cfg.train_dataloader.sampler.batch_size = 32
    return cfg


@pytest.fixture(scope='module')
def data(cfg):
    return TwoTowerData(cfg)


@pytest.mark.parametrize('mode', ['unbiased', 'sogram'])
def test_steps_give_the_weights_of_a_whole_training(cfg, data, tmp_path, mode):
    cfg = Config(cfg.to_dict())
    cfg.work_dir, cfg.experiment_name = str(tmp_path), f'whole_{mode}'
    cfg.train_cfg.max_epochs, cfg.log_level = 1, 'ERROR'
    cfg.model.loss.mode = mode
    cfg.test_dataloader = cfg.test_evaluator = cfg.test_cfg = None
    if mode == 'sogram':
        cfg.train_dataloader.batch_size *= 2
        cfg.train_dataloader.dataset.sampling = 'sogram'
    runner = Runner.from_cfg(cfg)
    runner.train()
    loop = StepwiseTraining(data, dict(cfg.model.loss))
    # Looking at the model between steps changes nothing.
    for step in range(loop.steps_per_epoch):
        loop.train(1)
        if step == 1:
            loop.evaluate()
            loop.objective()
    assert loop.step == runner.iter > 2
    weights = runner.model.state_dict()
    assert weights.keys() == loop.model.state_dict().keys()
    for name, value in loop.model.state_dict().items():
        assert torch.equal(value, weights[name]), name
    expected = runner.val_loop.run()
    assert loop.evaluate() == {k: expected[k] for k in loop.evaluate()}


def test_trainings_share_nothing_but_the_data(data):
    one = StepwiseTraining(data, dict(type='mmrank.InBatchLoss', mode='popularity'), 16, lr=0.5)
    other = StepwiseTraining(data)
    assert one.model.pair_loss.mode == 'popularity'
    assert other.model.pair_loss.mode == 'unbiased'
    assert (one.batch_size, other.batch_size) == (16, 32)
    before = [x.clone() for x in other.model.parameters()]
    one.train(2)
    assert (one.step, other.step) == (2, 0)
    assert all(map(torch.equal, before, other.model.parameters()))


def test_many_trainings_open_no_file(data):
    folder = Path('/proc/self/fd')
    if not folder.is_dir():
        pytest.skip('this system does not list open files')
    StepwiseTraining(data)
    before = len(os.listdir(folder))
    for _ in range(3):
        StepwiseTraining(data)
    assert len(os.listdir(folder)) == before


@pytest.mark.parametrize('pointwise', ['square', 'logistic'])
@pytest.mark.parametrize(
    'mode',
    ['unbiased', 'unbiased_omega', 'popularity', 'pos_neg', 'in_batch',
     'in_batch_omega'],
)  # fmt: skip
def test_expected_objective_is_the_mean_over_all_batches(mode, pointwise):
    from mmrank.losses import InBatchLoss

    class Table(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            g = torch.Generator().manual_seed(size)
            self.weight = torch.randn(size, 2, generator=g).double()

        def forward(self, entities):
            return self.weight[entities['ids']]

    model = torch.nn.Module()
    model.left, model.right = Table(4), Table(3)
    pairs = [(0, 0), (0, 1), (1, 1), (2, 0), (2, 2), (3, 2)]
    omega = dict(omega=0.4) if mode.endswith('_omega') else {}
    loss = InBatchLoss(mode, pointwise, **omega)
    rows, cols = torch.tensor(pairs).unbind(1)
    loss.set_pairs(rows, cols, (4, 3))
    values = []
    for chosen in combinations(pairs, 3):
        i, j = torch.tensor(chosen).unbind(1)
        values.append(loss(model.left.weight[i], model.right.weight[j], i, j))
    every = dict(
        left=dict(ids=torch.arange(4)),
        right=dict(ids=torch.arange(3)),
        rows=rows,
        cols=cols,
        left_index=rows,
        right_index=cols,
    )
    objective = ExpectedObjective(loss, 3, every)
    torch.testing.assert_close(objective(model), torch.stack(values).mean(), rtol=1e-12, atol=1e-12)


class FakeLoop:
    """Objective and metric are given by step and learning rate."""

    steps_per_epoch = 8

    def __init__(self, lr, metric=None):
        self.lr, self.step, self.checked = lr, 0, []
        self.metric = metric or (lambda step: min(step, 16))

    def train(self, steps):
        self.step += steps

    def objective(self):
        self.checked.append(self.step)
        if self.lr > 4:
            return math.nan if self.step > 1 else 1.0
        return 1.0 + (self.step > 3) * 30.0 * self.lr

    def evaluate(self):
        return dict(score=float(self.metric(self.step)), other=1.0)


def test_search_halves_until_nothing_diverges():
    loops = []

    def start(lr):
        loops.append(FakeLoop(lr))
        return loops[-1]

    rule = SearchRule(first_exponent=4, patience=3, checks_per_epoch=1)
    training, diverged = search_learning_rate(start, rule)
    # 16 and 8 end in NaN, 4 at 121 times the first value, 2 at 61 times.
    assert [x.lr for x in diverged] == [16, 8, 4]
    assert [x.steps for x in diverged] == [2, 2, 4]
    assert training.lr == 2
    assert training.ended == 'no improvement'
    # The last improvement was at step 16; three epochs of 8 steps later.
    assert training.steps == 40
    assert training.epochs == 5
    assert training.best == dict(score=16.0, other=1.0)
    assert [x['step'] for x in training.history] == [8, 16, 24, 32, 40]
    assert loops[-1].checked == [0, 1, 2, 4, 8, 16, 24, 32, 40]


def test_search_keeps_the_best_of_each_metric_and_its_limit():
    rule = SearchRule(max_steps=20, checks_per_epoch=2, patience=10)
    loop = FakeLoop(1.0, metric=lambda step: -abs(step - 12))
    training = train_until_it_ends(loop, 1.0, rule)
    assert training.ended == 'max_steps'
    assert training.best['score'] == 0
    assert [x['step'] for x in training.history] == [4, 8, 12, 16, 20]
    with pytest.raises(RuntimeError, match='diverges at every'):
        search_learning_rate(FakeLoop, SearchRule(last_exponent=12))
    with pytest.raises(ValueError, match='patience must be'):
        SearchRule(patience=0)
    with pytest.raises(ValueError, match='last_exponent'):
        SearchRule(last_exponent=19)


def test_search_on_real_data(data):
    rule = SearchRule(first_exponent=6, max_steps=40, checks_per_epoch=1, divergence=1.5)
    training, diverged = search_learning_rate(lambda lr: StepwiseTraining(data, lr=lr), rule)
    assert diverged
    assert diverged[-1].lr == 2 * training.lr
    assert training.last_objective < training.first_objective
    # By chance: 5 of the 15 items that a user has not seen, or 33.
    assert training.best['top_k/recall@5'] > 40


def test_lbfgs_reaches_the_least_squares():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(30, 6, generator=g, dtype=torch.float64)
    b = torch.randn(30, generator=g, dtype=torch.float64)
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 1, bias=False).double()
    seen = []
    # Below 1e-8 the objective, of order 1 in float64, no longer falls.
    result = minimise_by_lbfgs(
        model,
        lambda m: (m(a)[:, 0] - b).square().mean(),
        tolerance=1e-7,
        check_interval=3,
        evaluate=lambda m: dict(size=float(m.weight.detach().norm())),
        report=lambda r: seen.append(r.iterations),
    )
    assert result.converged
    assert result.gradient_norm <= 1e-7
    best = torch.linalg.lstsq(a, b[:, None]).solution[:, 0]
    torch.testing.assert_close(model.weight[0], best, rtol=1e-6, atol=1e-7)
    assert seen[0] == 0
    assert result.iterations == seen[-1] <= 30
    assert result.best['size'] >= result.last['size'] > 0
    few = minimise_by_lbfgs(
        torch.nn.Linear(6, 1, bias=False).double(),
        lambda m: (m(a)[:, 0] - b).square().mean(),
        max_iterations=2,
    )
    assert not few.converged
    assert few.iterations == 2


def test_full_gradient_reaches_the_papers_norm(data):
    cell = dict(pointwise='square', mode='unbiased', full=True, max_iterations=400)
    result = run_cell(cell, data, (), data.all_pairs())
    assert result['converged']
    assert result['gradient_norm'] <= 1e-7
    # Better than sampling in a few steps.
    few = StepwiseTraining(data, dict(type='mmrank.InBatchLoss'), lr=0.125)
    few.train(10)
    assert result['objective'] < few.objective()
    json.dumps(result)


def test_omega_is_that_of_pos_neg_at_its_best_ratio(data):
    kind = dict(pointwise='square', mode='pos_neg', full=False)
    cells = [
        dict(kind, batch_ratio=ratio, best={'top_k/precision@5': value})
        for ratio, value in ((1e-1, 3.0), (1e-2, 5.0))
    ]
    size = data.batch_size(1e-2)
    assert chosen_omega('square', cells, data) == (size - 1) / (data.num_positives - 1)
    with pytest.raises(ValueError, match='pos_neg'):
        chosen_omega('logistic', cells, data)


def test_config_of_other_data(cfg):
    cfg = Config(cfg.to_dict())
    cfg.train_dataloader.dataset = cfg.val_dataloader.dataset
    with pytest.raises(TypeError, match='TopKDataset where a'):
        TwoTowerData(cfg)
