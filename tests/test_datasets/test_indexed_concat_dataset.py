"""Joined data sets whose samples keep indices of their own."""

from labelled import LabelledItems
from mmengine.structures import BaseDataElement

from mmrank.registry import DATASETS


def joined():
    parts = [LabelledItems([dict(number=i) for i in numbers]) for numbers in ([0, 1, 2], [10, 11])]
    return DATASETS.build(dict(type='mmrank.IndexedConcatDataset', datasets=parts))


def packed(info):
    sample = BaseDataElement(metainfo=dict(sample_idx=info['sample_idx']))
    return dict(inputs=info['number'], data_samples=sample)


def test_every_sample_has_its_own_index():
    whole = joined()
    for part in whole.datasets:
        part.pipeline = packed
    assert len(whole) == 5
    items = [whole[i] for i in range(5)]
    assert [x['inputs'] for x in items] == [0, 1, 2, 10, 11]
    samples = [x['data_samples'] for x in items]
    assert [x.sample_idx for x in samples] == [0, 1, 2, 3, 4]
    assert [x.dataset_idx for x in samples] == [0, 0, 0, 1, 1]
    assert whole[-1]['data_samples'].sample_idx == 4


def test_items_that_are_not_packed():
    whole = joined()
    for i in range(5):
        for item in (whole[i], whole.get_data_info(i)):
            assert (item['sample_idx'], item['dataset_idx']) == (i, i // 3)
            assert item['number'] == i % 3 + 10 * (i // 3)
