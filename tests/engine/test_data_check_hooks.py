"""Refusals before training with state per sample."""

from types import SimpleNamespace

import pytest
from labelled import LabelledItems
from mmengine.dataset import BaseDataset, ClassBalancedDataset, ConcatDataset, RepeatDataset
from mmengine.hooks import EarlyStoppingHook
from mmengine.registry import DefaultScope
from PIL import Image
from tiny_runner import stand_in
from torch.utils.data import ConcatDataset as JoinedByTorch
from torch.utils.data import Dataset, Subset

from mmrank.datasets import IndexedConcatDataset
from mmrank.engine.hooks.data_check_hooks import StartCheckHook, _check_monitors, _count_indices
from mmrank.errors import UserError
from mmrank.losses import InfoNCELoss, ISogCLRLoss, SOAPLoss, SogCLRLoss
from mmrank.registry import HOOKS


def numbers(size):
    return LabelledItems([{}] * size)


class Plain(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        raise AssertionError('no image is to be loaded')


def check(dataset, *losses, batch_size=2):
    hook = HOOKS.build(dict(type='mmrank.SampleIndexHook'))
    hook.before_train(stand_in(dataset, *losses, batch_size=batch_size))


@pytest.mark.parametrize(
    ('make', 'size'),
    [
        (lambda: numbers(6), 6),
        (lambda: RepeatDataset(numbers(6), 3), 6),
        (lambda: Subset(RepeatDataset(numbers(6), 3), [0, 9]), 6),
        (lambda: Subset(numbers(6), [1, 4]), 6),
        (lambda: IndexedConcatDataset([numbers(4), numbers(2)]), 6),
        (lambda: Subset(ConcatDataset([numbers(6)]), [3]), 6),
        (Plain, 6),
    ],
)
def test_indices_are_counted(make, size):
    assert _count_indices(make()) == size
    check(make(), SogCLRLoss(6), ISogCLRLoss(6), SOAPLoss(6))


@pytest.mark.parametrize('num_samples', [5, 7])
def test_data_sets_that_do_not_fit(num_samples):
    message = rf'1 \(ISogCLRLoss\) .* num_samples={num_samples}, .* 6 samples'
    with pytest.raises(ValueError, match=message):
        check(numbers(6), SogCLRLoss(6), ISogCLRLoss(num_samples))
    with pytest.raises(UserError, match='batch_size of at least 2'):
        check(numbers(6), ISogCLRLoss(6), batch_size=1)
    shifted = numbers(6)
    shifted.get_data_info = lambda index: dict(sample_idx=index + 1)
    with pytest.raises(ValueError, match='sample 0 of LabelledItems .*=1;'):
        check(shifted, SogCLRLoss(6))


@pytest.mark.parametrize('wrap', [lambda x: x, lambda x: Subset(x, [0, 5])])
def test_collisions(wrap, logged):
    dataset = wrap(ConcatDataset([numbers(4), numbers(2)]))
    with pytest.raises(ValueError, match=r'\[4, 2\].*IndexedConcatDataset'):
        check(dataset, SogCLRLoss(6))
    check(dataset, InfoNCELoss())
    assert 'no loss has sample state' in logged[-1].getMessage()


class Loaded(BaseDataset):
    """Two samples through a pipeline that ends with ``last``."""

    def __init__(self, last):
        steps = [dict(type='mmdet.LoadAnnotations'), last]
        names = dict(classes=('cat',))
        super().__init__(serialize_data=False, metainfo=names, pipeline=steps)

    def load_data_list(self):
        return [{}, {}]

    def get_cat_ids(self, index):
        return [0]


LOAD = dict(type='mmcv.LoadImageFromFile')
PACK, FLIP = dict(type='mmdet.PackDetInputs'), dict(type='mmdet.RandomFlip', prob=1.0)


def _wrappers():
    mmdet, mmpretrain = (pytest.importorskip(f'{x}.datasets') for x in ('mmdet', 'mmpretrain'))

    def mixed(last, inner=FLIP):
        with DefaultScope.overwrite_default_scope('mmdet'):
            return mmdet.MultiImageMixDataset(Loaded(inner), [dict(type='mmdet.Mosaic'), last])

    return {
        'none': Loaded,
        'RepeatDataset': lambda last: RepeatDataset(Loaded(last), 2),
        'ClassBalancedDataset': lambda last: ClassBalancedDataset(Loaded(last), 0.1),
        'ConcatDataset': lambda last: ConcatDataset([Loaded(PACK), Loaded(last)]),
        'ConcatDataset of mmdet': lambda last: mmdet.ConcatDataset([Loaded(PACK), Loaded(last)]),
        'IndexedConcatDataset': lambda last: IndexedConcatDataset([Loaded(PACK), Loaded(last)]),
        'KFoldDataset': lambda last: mmpretrain.KFoldDataset(
            dict(type=Loaded, last=last), num_splits=2
        ),
        'Subset': lambda last: Subset(Loaded(last), [0]),
        'MultiImageMixDataset': mixed,
        'Subset of mixed': lambda last: Subset(mixed(last), [0]),
        'joined by torch': lambda last: JoinedByTorch([mixed(last), Loaded(PACK)]),
        'mixed of packed': lambda last: mixed(last, PACK),
    }


def test_the_outermost_pipeline_packs():
    loader = SimpleNamespace(dataset=Loaded(LOAD))
    for _ in range(2):
        with pytest.raises(UserError, match='ends with LoadImageFromFile'):
            StartCheckHook().before_val(SimpleNamespace(val_dataloader=loader))
    for name, wrap in _wrappers().items():
        for split in ('val', 'test'):
            hook = StartCheckHook()
            check = getattr(hook, f'before_{split}')
            runners = [
                SimpleNamespace(
                    **{f'{split}_dataloader': SimpleNamespace(dataset=wrap(last))},
                    test_evaluator=SimpleNamespace(metrics=[]),
                )
                for last in (PACK, FLIP)
            ]
            check(runners[0])
            with pytest.raises(UserError, match='RandomFlip, and nothing packs') as caught:
                check(runners[1])
            assert str(caught.value).startswith(f'{split}_dataloader.dataset'), name


def sized(path, width, height):
    """One image, of which the annotations say ``width`` x ``height``."""
    item = dict(img_path=str(path), width=width, height=height)
    return LabelledItems([item], pipeline=[LOAD, PACK])


@pytest.mark.parametrize(
    ('size', 'wrap'),
    [
        ((40, 30), sized),
        ((80, 60), sized),
        ((30, 40), lambda *args: RepeatDataset(sized(*args), 2)),
        ((41, 30), lambda *args: ConcatDataset([sized(args[0], 40, 30), sized(*args)])),
        ((None, None), sized),
    ],
)
def test_image_of_another_size_is_refused_as_it_is_loaded(size, wrap, tmp_path):
    Image.new('RGB', (40, 30)).save(tmp_path / 'a.png')
    dataset = wrap(tmp_path / 'a.png', *size)
    for _ in range(2):  # of each validation
        StartCheckHook().before_val(
            SimpleNamespace(val_dataloader=SimpleNamespace(dataset=dataset))
        )
    if size in ((40, 30), (None, None)):
        assert dataset[len(dataset) - 1]['inputs'].shape == (3, 30, 40)
        return
    message = f'a.png is 40 x 30, the annotation file has {size[0]} x {size[1]}.*Fix: '
    with pytest.raises(UserError, match=message):
        dataset[len(dataset) - 1]


@pytest.mark.parametrize(
    ('names', 'monitor', 'message'),
    [
        (['accuracy', 'loss'], 'acc', "'acc' is not a metric.*Fix: one of accuracy, loss"),
        ([], 'acc', 'Fix: a validation'),
    ],
)
def test_early_stopping_waits_for_a_metric_that_comes(names, monitor, message):
    runner = SimpleNamespace(hooks=[EarlyStoppingHook(monitor=monitor, rule='greater')])
    with pytest.raises(UserError, match=message):
        _check_monitors(runner, names)
    _check_monitors(runner, [*names, monitor])
