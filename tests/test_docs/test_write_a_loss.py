"""Every code block of docs/pages/write_a_loss.md runs as the page says."""

import importlib
import logging
import re
import sys
from types import SimpleNamespace

import docs_blocks
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import DefaultScope

from mmrank.engine.hooks import ClassCountsHook
from mmrank.functional import Sigmoid, split_lists
from mmrank.registry import MODELS
from mmrank.testing import check_loss

PAGE = docs_blocks.PAGES / 'write_a_loss.md'


def blocks():
    """Text of each block by the file name in its first line; one block, at the end, runs them."""
    texts = docs_blocks.blocks(PAGE, 'python')
    assert len(docs_blocks.all_blocks(PAGE)) == len(texts) + 1
    return {re.match(r'# (\w+)\.py\n', text)[1]: text for text in texts}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The page as the files of a user, on the Python path."""
    place = tmp_path_factory.mktemp('user')
    for name, text in blocks().items():
        (place / f'{name}.py').write_text(text)
    sys.path.insert(0, str(place))
    yield place
    sys.path.remove(str(place))
    for name in blocks():
        sys.modules.pop(name, None)
    for name in [*ROOT_MODELS.module_dict]:
        if 'MissedAtK' in name or name == 'GapLoss':
            ROOT_MODELS.module_dict.pop(name)


def load(folder, name):
    assert (folder / f'{name}.py').is_file()
    return importlib.import_module(name)


def batch():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 3, generator=g, requires_grad=True)
    return scores, torch.arange(30) % 4


def test_use_by_hand(folder):
    module = load(folder, 'use_by_hand')
    assert module.scores.grad.abs().sum() > 0
    assert 0 < module.value < 1
    assert module.one_list.shape == (1,)
    torch.testing.assert_close(
        module.lists.mean().float(), module.loss(module.scores, module.labels)
    )


def test_a_loss_of_few_lines_passes_the_checks(folder):
    assert len(blocks()['my_losses'].splitlines()) == 37
    assert not check_loss(load(folder, 'my_losses').MissedAtKLoss(tau=1.0)).failures


def test_the_tests_of_the_page_pass(folder):
    module = load(folder, 'test_my_losses')
    tests = [value for name, value in vars(module).items() if name.startswith('test_')]
    assert len(tests) == 4
    for test in tests:
        (mark,) = getattr(test, 'pytestmark', [None])
        for case in [{mark.args[0]: x} for x in mark.args[1]] if mark else [{}]:
            test(**case)


@pytest.mark.parametrize('name', ['MissedAtKLoss', 'LoggedMissedAtKLoss', 'GapLoss'])
def test_losses_learn(folder, name):
    for file in ('my_losses', 'logged_loss', 'gap_loss'):
        load(folder, file)
    loss = MODELS.build(dict(type=name, mode='per_class'))
    scores, target = batch()
    optimizer = torch.optim.Adam([scores], lr=0.1)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(scores, target)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.95 * values[0]
    assert loss.diagnostics['num_positive'] == 23
    if name.startswith('Logged'):
        recall = loss.diagnostics['recall']
        assert not recall.requires_grad
        assert recall.item() == pytest.approx(1 - values[-1], rel=1e-6)


def test_state_is_saved(folder):
    module = load(folder, 'stateful_loss')
    loss = module.CentredMissedAtKLoss(tau=0.5)
    plain = load(folder, 'my_losses').MissedAtKLoss(tau=0.5)
    scores, target = batch()
    assert torch.equal(loss(scores, target), plain(scores, target))
    state = loss.state_dict()
    rows = (target < 3).nonzero().squeeze(1)
    positives = scores[rows, target[rows]].detach()
    torch.testing.assert_close(state['mean_positive.mean'], positives.mean()[None])
    other = module.CentredMissedAtKLoss(tau=0.5)
    other.load_state_dict(state)
    assert torch.equal(other.logit_centre(), loss.logit_centre())
    for activation in ('none', 'sigmoid'):
        other.activation = activation
        other.mean_positive.mean.fill_(0.25)
        other.shift_logits(-other.logit_centre())
        assert other.logit_centre().abs() < 1e-6


class Labels(list):
    """A data set of class labels, as the hook reads it."""

    def get_data_info(self, index):
        return dict(gt_label=self[index])


def test_class_counts_reach_the_loss(folder):
    module = load(folder, 'counted_loss')
    loss = module.CountedMissedAtKLoss(num_classes=3, tau=0.5)
    loader = SimpleNamespace(dataset=Labels([0, 1, 1, 2, 2, 2]))
    runner = SimpleNamespace(
        model=torch.nn.ModuleList([loss]),
        logger=logging.getLogger('write_a_loss'),
        train_loop=SimpleNamespace(dataloader=loader),
    )
    ClassCountsHook().before_train(runner)
    torch.testing.assert_close(loss.weights, 2 / torch.tensor([1.0, 2.0, 3.0]).double())
    scores, target = batch()
    labels = target == torch.arange(3)[:, None]
    missed_at_k = load(folder, 'my_losses').missed_at_k
    losses = missed_at_k(split_lists(scores.t(), labels), surrogate=Sigmoid(0.5))
    expected = (loss.weights * losses).mean().float()
    torch.testing.assert_close(loss(scores, target), expected)


def test_the_config(folder):
    pytest.importorskip('mmdet')
    pytest.importorskip('mmpretrain')
    from mmpretrain.structures import DataSample

    cfg = Config.fromfile(folder / 'my_config.py')
    feats = torch.randn(12, 512, requires_grad=True)
    labels = [DataSample(metainfo=dict(sample_idx=i)).set_gt_label(i % 4) for i in range(12)]
    for head in (cfg.retrieval_head, cfg.classification_head):
        MODELS.build(head).loss(feats, labels)['loss'].backward()
    assert feats.grad.abs().sum() > 0
    with DefaultScope.overwrite_default_scope('mmdet'):
        head = MODELS.build(cfg.detection_head)
    total = head.loss_cls.loss
    assert [type(part).__name__ for part in total.losses] == ['StableAPLoss', 'MissedAtKLoss']
    assert total.losses[1].num_columns == 80
    assert cfg.custom_hooks[0].type == 'mmrank.RankingMonitorHook'


@pytest.mark.slow
def test_newcomer_runs(newcomer):
    for name, text in blocks().items():
        (newcomer.folder / f'{name}.py').write_text(text)
    output = newcomer(docs_blocks.blocks(PAGE, 'bash'))
    assert int(re.search(r'(\d+) passed', output)[1]) >= 4
    assert "{'type': 'MissedAtKLoss', 'k': 4}" in output


@pytest.mark.slow
def test_two_processes_equal_one(folder):
    load(folder, 'test_two_processes').test_two_processes()
