"""Joined data sets whose samples keep indices of their own."""

import pytest
from mmengine.dataset import BaseDataset
from mmengine.structures import BaseDataElement

from mmrank.registry import DATASETS


class Numbers(BaseDataset):
    """Samples of one number, packed or not."""

    def __init__(self, first, size, packed=True, **kwargs):
        self.first, self.size, self.packed = first, size, packed
        super().__init__(serialize_data=False, **kwargs)

    def load_data_list(self):
        return [dict(number=self.first + i) for i in range(self.size)]

    def prepare_data(self, idx):
        info = self.get_data_info(idx)
        if not self.packed:
            return info
        sample = BaseDataElement(metainfo=dict(sample_idx=info['sample_idx']))
        return dict(inputs=info['number'], data_samples=sample)


def joined(packed=True):
    parts = [Numbers(0, 3, packed), Numbers(10, 2, packed)]
    return DATASETS.build(dict(type='mmrank.IndexedConcatDataset', datasets=parts))


def test_every_sample_has_its_own_index():
    whole = joined()
    assert len(whole) == 5
    items = [whole[i] for i in range(5)]
    assert [x['inputs'] for x in items] == [0, 1, 2, 10, 11]
    samples = [x['data_samples'] for x in items]
    assert [x.sample_idx for x in samples] == [0, 1, 2, 3, 4]
    assert [x.dataset_idx for x in samples] == [0, 0, 0, 1, 1]
    assert whole[-1]['data_samples'].sample_idx == 4


def test_items_that_are_not_packed():
    whole = joined(packed=False)
    for i, item in enumerate(whole[i] for i in range(5)):
        assert (item['sample_idx'], item['dataset_idx']) == (i, i // 3)
        info = whole.get_data_info(i)
        assert (info['sample_idx'], info['dataset_idx']) == (i, i // 3)
        assert info['number'] == item['number']


def test_data_sets_of_other_classes_are_refused():
    parts = [Numbers(0, 3, metainfo=dict(classes=('a',))), Numbers(10, 2)]
    with pytest.raises(ValueError, match='classes'):
        DATASETS.build(dict(type='mmrank.IndexedConcatDataset', datasets=parts))
