"""What every registered data set keeps to: numbers, processes, seeds, settings and files."""

import json
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest
from chest_xray_tree import write_chest_xrays
from cifar_trees import write_arrays
from mmengine.registry import DATASETS as ROOT
from retrieval_trees import write_images, write_inaturalist, write_sop, write_vehicles
from torch.utils.data import DataLoader

pytest.importorskip('mmpretrain')
from mmpretrain.datasets import CIFAR100

from mmrank.errors import UserError
from mmrank.registry import DATASETS

IMAGES = [f'{name}/{i}.png' for name in 'abc' for i in range(3)]


class Case(NamedTuple):
    """A data set, what writes its files, its settings, and the files of which it needs each."""

    write: object
    settings: dict
    length: int
    files: tuple = ()
    #: Settings that choose other items.
    other: dict | None = None


def text(name, content):
    """Writes images, and a file of text."""

    def write(root):
        write_images(root, IMAGES)
        (root / name).write_text(content)

    return write


def pairs(root):
    (root / 'train.csv').write_text(''.join(f'{i % 5},{i % 4}\n' for i in range(19)))
    (root / 'test.csv').write_text('4,3\n')


def cifar100(root, train=9):
    write_arrays(root, {'train': train, 'test': 1}, CIFAR100.METAINFO['classes'])


def karpathy():
    sentences = [dict(raw='x'), dict(raw='y')]
    return dict(images=[dict(filename=x, split='train', sentences=sentences) for x in IMAGES])


def coco_captions():
    annotations = [dict(image_id=i, caption=f'{i} {j}') for i in range(9) for j in 'xy']
    images = [dict(id=i, file_name=path) for i, path in enumerate(IMAGES)]
    return dict(images=images, annotations=annotations)


def captions(name, content):
    content = content if isinstance(content, str) else json.dumps(content)
    return Case(text(name, content), dict(ann_file=name), 18, (name,), dict(unit='image'))


TSV = 'image\tcaption\n' + ''.join(f'{path}\t{word} {path}\n' for path in IMAGES for word in 'xy')
CSV = 'image,p,q\n' + ''.join(f'{path},{i % 2},{i % 3 % 2}\n' for i, path in enumerate(IMAGES))
TABLE = 'Data_Entry_2017.csv'
SMALL = ('train_test_split/test_list_800.txt',)
SPECIES = ('Inat_dataset_splits/Inaturalist_train_set1.txt',)
ARRAYS = ('train.npz', 'test.npz')
CASES = {
    'StanfordOnlineProducts': Case(
        write_sop, dict(split='val'), 6, ('Ebay_train.txt',), dict(split_seed=3)
    ),
    'VehicleID': Case(
        write_vehicles, dict(split='test', test_size='small'), 6, SMALL, dict(test_size='medium')
    ),
    'INaturalistRetrieval': Case(
        write_inaturalist, dict(split='trainval'), 6, SPECIES, dict(split='test')
    ),
    'Omniglot': Case(
        lambda root: write_images(root, [f'Latin/{path}' for path in IMAGES]),
        {},
        9,
        other=dict(classes=['Latin/a']),
    ),
    'ClassFolder': Case(
        text('list.txt', '\n'.join(IMAGES)),
        dict(ann_file='list.txt', split='val', val_fraction=0.4),
        3,
        ('list.txt',),
        dict(split_seed=2),
    ),
    'CIFAR10LT': Case(write_arrays, dict(imbalance_ratio=4), 216, ('train.npz',), dict(seed=1)),
    'CIFAR100LT': Case(
        lambda root: cifar100(root, 2),
        dict(imbalance_ratio=1),
        200,
        ('train.npz',),
        dict(split='test'),
    ),
    'CIFAR10BinaryLT': Case(
        write_arrays, dict(positive='cat', imbalance_ratio=4), 217, ARRAYS, dict(seed=1)
    ),
    'CIFAR100BinaryLT': Case(
        cifar100, dict(positive=['apple', 'bus'], imbalance_ratio=1), 800, ARRAYS, dict(seed=1)
    ),
    'ChestXray14': Case(
        write_chest_xrays,
        dict(split='test'),
        45,
        (TABLE, 'test_list.txt', 'train_val_list.txt'),
        dict(split_by='patients', classes=['Mass']),
    ),
    'MultiLabelCSV': Case(
        text('train.csv', CSV), dict(ann_file='train.csv', data_prefix='.'), 9, ('train.csv',)
    ),
    'CaptionTable': captions('train.tsv', TSV),
    'COCOCaptions': captions('captions.json', coco_captions()),
    'KarpathyCaptions': captions('karpathy.json', karpathy()),
    'InteractionDataset': Case(pairs, dict(ann_file='train.csv'), 19, ('train.csv',)),
    'TopKDataset': Case(
        pairs, dict(ann_file='test.csv', train_ann_file='train.csv'), 1, ('train.csv', 'test.csv')
    ),
}
#: mmdet's with a check of their own, and a wrapper.
ELSEWHERE = {'CheckedCocoDataset', 'LVISDataset', 'IndexedConcatDataset', 'StoredSamples'}
OF_MMPRETRAIN = [name for name in CASES if name not in ('InteractionDataset', 'TopKDataset')]
#: Their images are looked for when they are loaded.
LISTS = ('StanfordOnlineProducts', 'VehicleID', 'INaturalistRetrieval', 'ClassFolder')
every_data_set = pytest.mark.parametrize('name', CASES)


@pytest.fixture
def build(tmp_path):
    def build(name, **other):
        own = dict(pipeline=[], serialize_data=False) if name in OF_MMPRETRAIN else {}
        settings = {**own, **CASES[name].settings, **other}
        return ROOT.build(dict(type=f'mmrank.{name}', data_root=str(tmp_path), **settings))

    return build


@pytest.fixture
def written(tmp_path, build, name):
    CASES[name].write(tmp_path)
    return build


def text_of(item):
    """An item; arrays by their bytes, which take a tenth of the time of their digits."""
    if not isinstance(item, dict):
        return str(item)
    return str({k: x.tobytes() if isinstance(x, np.ndarray) else x for k, x in item.items()})


def contents(dataset):
    return [text_of(dataset[i]) for i in range(len(dataset))]


def test_every_registered_data_set_is_here():
    import_module('mmrank.datasets.registered')
    assert {*CASES} == {*DATASETS.module_dict} - ELSEWHERE


@every_data_set
def test_items_are_the_same_each_time_and_in_two_processes(written, name):
    dataset = written(name)
    assert len(dataset) == CASES[name].length
    found = contents(dataset)
    assert contents(written(name)) == found
    loader = DataLoader(dataset, None, num_workers=1, collate_fn=lambda item: item)
    assert [text_of(item) for item in loader] == found
    if CASES[name].other:
        assert contents(written(name, **CASES[name].other)) != found


@pytest.mark.parametrize('name', OF_MMPRETRAIN)
def test_items_are_numbered_and_lazy_and_may_be_a_part(written, name):
    dataset = written(name)
    assert [dataset[i]['sample_idx'] for i in range(len(dataset))] == list(range(len(dataset)))
    lazy = written(name, lazy_init=True)
    lazy.full_init()
    assert contents(lazy) == contents(dataset)
    assert contents(written(name, indices=2)) == contents(dataset)[:2]
    labels = {int(x) for item in dataset for x in np.atleast_1d(item.get('gt_label', []))}
    assert labels <= set(range(len(dataset.metainfo.get('classes', ()))))


@pytest.mark.parametrize('name', [name for name in CASES if 'split' in CASES[name].settings])
def test_unknown_splits_are_refused(written, name):
    with pytest.raises(ValueError, match="split='dev' is unknown"):
        written(name, split='dev')


@every_data_set
@pytest.mark.parametrize('content', [None, b'', b'\xff\xfe\x00', b'\x80\x04]\x94.', b'[1, {"a"\n3'])
def test_damaged_files_are_named(written, name, tmp_path, content):
    for file in CASES[name].files:
        path = tmp_path / file
        whole = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError) as caught:
            written(name)
        assert path.name in str(caught.value)
        assert 'Fix: ' in str(caught.value)
        assert len(str(caught.value)) < 1000
        path.write_bytes(whole)


@pytest.mark.parametrize('name', [x for x in OF_MMPRETRAIN if 'CIFAR' not in x and x not in LISTS])
def test_a_folder_without_images_is_named(written, name, tmp_path):
    with pytest.raises(UserError, match=f'{tmp_path}.* Fix: '):
        written(name, data_prefix='elsewhere')
