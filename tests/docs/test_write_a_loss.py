"""Every code block of docs/pages/write_a_loss.md runs as the page says."""

import importlib
import re
import sys

import docs_blocks
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import DefaultScope

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


def test_use_by_hand(folder):
    module = load(folder, 'use_by_hand')
    assert module.scores.grad.abs().sum() > 0
    assert 0 < module.value < 1
    assert module.one_list.shape == (1,)
    torch.testing.assert_close(
        module.lists.mean().float(), module.loss(module.scores, module.labels)
    )


@pytest.mark.parametrize(
    ('file', 'name', 'options'),
    [
        ('my_losses', 'MissedAtKLoss', dict(tau=1.0)),
        ('stateful_loss', 'CentredMissedAtKLoss', dict(tau=1.0)),
        ('counted_loss', 'CountedMissedAtKLoss', dict(tau=1.0, num_classes=3)),
        ('logged_loss', 'LoggedMissedAtKLoss', dict(tau=1.0)),
        ('gap_loss', 'GapLoss', {}),
    ],
)
def test_losses_pass_the_checks(folder, file, name, options):
    loss = getattr(load(folder, file), name)(**options)
    assert not check_loss(loss).failures


def test_the_tests_of_the_page_pass(folder):
    module = load(folder, 'test_my_losses')
    tests = [value for name, value in vars(module).items() if name.startswith('test_')]
    assert len(tests) == 4
    for test in tests:
        (mark,) = getattr(test, 'pytestmark', [None])
        for case in [{mark.args[0]: x} for x in mark.args[1]] if mark else [{}]:
            test(**case)


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
def test_two_processes_equal_one(folder):
    load(folder, 'test_two_processes').test_two_processes()
