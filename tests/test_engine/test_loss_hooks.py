"""Facts of the training set that losses get, and re-weighting that starts late."""

from types import SimpleNamespace

import pytest
import torch
from labelled import LabelledItems
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.model import BaseModel
from tiny_runner import train
from torch import nn
from torch.utils.data import Dataset

from mmrank.datasets.interactions import Interactions
from mmrank.datasets.samplers.labels import label_pairs
from mmrank.engine.hooks import ClassCountsHook, CosineBeta0Hook, PairCountsHook
from mmrank.losses import (
    ClassBalancedCELoss,
    InBatchLoss,
    LDAMLoss,
    SogCLRLoss,
    SOPRCLoss,
    StableAPLoss,
    SumLoss,
)


def labelled(labels, classes, key='gt_label'):
    return LabelledItems([{key: label} for label in labels], classes)


MULTI = labelled([[0, 2], [], [2], [1, 2]], 'abc')
SCORES = labelled([[1, 0, 1], [0, 0, 0], [0, 0, 1.0], [0, 1, 1]], 'abc', 'gt_score')
BINARY = labelled([0, 0, 1, 0, 0], ('rest', 'cat'))


def tell(dataset, *losses, hook=ClassCountsHook):
    runner = SimpleNamespace(
        model=nn.ModuleList(losses),
        train_loop=SimpleNamespace(dataloader=SimpleNamespace(dataset=dataset)),
        logger=MMLogger.get_instance('class_counts', log_level='ERROR'),
    )
    hook().before_train(runner)
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


def test_losses_that_do_not_ask_are_left_alone():
    given = LDAMLoss([7, 8])
    # Their number of classes is not compared either.
    soprc = SOPRCLoss(5, 'per_class', prior=0.2)
    tell(BINARY, given, StableAPLoss(5), soprc)
    assert given.counts.get()[:, 1].tolist() == [7, 8]
    assert soprc.prior.prior.tolist() == [0.2]


class Points(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return dict(
            inputs=torch.randn(4, generator=g), labels=torch.tensor([float(index % 4 == 0)])
        )


class Net(BaseModel):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 1)
        self.ldam = LDAMLoss([3], num_samples=12)

    def forward(self, inputs, labels=None, mode='tensor'):
        return dict(loss=self.ldam(self.fc(inputs), labels))


class Recorder(Hook):
    def __init__(self):
        self.seen = []

    def after_train_iter(self, runner, *args, **kwargs):
        model = getattr(runner.model, 'module', runner.model)
        self.seen.append(int(model.ldam.reweighting))


def run(work_dir, hook, epochs=4, **settings):
    recorder = Recorder()
    settings = dict(default_hooks=dict(checkpoint=dict(type='CheckpointHook')), **settings)
    runner = train(
        Net(),
        work_dir,
        Points(),
        epochs,
        batch_size=4,
        shuffle=False,
        custom_hooks=[hook, recorder],
        **settings,
    )
    return recorder.seen, runner.model


@pytest.mark.parametrize(
    ('settings', 'equal'),
    [
        (dict(begin=2), 6),
        (dict(begin=4, by_epoch=False), 4),
        (dict(begin=0), 0),
        (dict(begin=9), 12),
    ],
)
def test_reweighting_starts_when_it_should(tmp_path, settings, equal):
    hook = dict(type='mmrank.DeferredReweightingHook', **settings)
    seen, _ = run(tmp_path / 'whole', hook)
    assert seen == [0] * equal + [1] * (12 - equal)


def test_a_resumed_run_goes_on_with_the_weights(tmp_path):
    hook = dict(type='mmrank.DeferredReweightingHook', begin=1)
    whole, model = run(tmp_path / 'whole', hook)
    run(tmp_path / 'half', hook, epochs=2)
    late = dict(type='mmrank.DeferredReweightingHook', begin=99)
    seen, resumed = run(
        tmp_path / 'half', late, resume=True, load_from=str(tmp_path / 'half' / 'epoch_2.pth')
    )
    # Saved in the checkpoint, whatever the hook says now.
    assert seen == whole[6:]
    for name, value in model.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


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


def test_pairs_that_no_loss_can_use():
    with pytest.raises(TypeError, match='list has no positive pairs'):
        tell([1, 2], InBatchLoss(), hook=PairCountsHook)
    lonely = SimpleNamespace(interactions=Interactions([1, 0], [0, 0], 'ab', 'xy'))
    with pytest.raises(ValueError, match=r'col_counts\[1\]=0'):
        tell(lonely, InBatchLoss(), hook=PairCountsHook)
