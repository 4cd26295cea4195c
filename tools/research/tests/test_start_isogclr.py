"""Every published set of the iSogCLR paper starts: made-up images in the layout of the real ones.

CIFAR, ImageNet-100 and iNaturalist-2018 have as many images as the real sets, which the losses
count, over a few files. cifar10_400e has the paper's batch and network; the others have smaller
batches, and a projector of 16 in place of 8,192 channels, CC3M a text encoder of one layer and 16
pairs: what a CPU does in two minutes.
"""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from made_up_data import write_cifar

pytest.importorskip('mmpretrain')

from mmpretrain.datasets import CIFAR10, CIFAR100
from starting_plans import start

pytestmark = pytest.mark.slow
FOLDER = 'tools/research/papers/isogclr'
SMALL = {'train_dataloader.batch_size': '8', 'test_dataloader.batch_size': '8'}
NARROW = {**SMALL, 'model.neck.hid_channels': '16', 'model.neck.out_channels': '16'}
PAIRS = {
    'train_dataloader.batch_size': '8',
    'model.image_encoder.0.init_cfg': 'None',
    'model.text_encoder._delete_': 'True',
    'model.text_encoder.type': 'mmrank.TextTransformer',
    'model.text_encoder.channels': '16',
    'model.text_encoder.num_layers': '1',
}

COUNTED = {**PAIRS, 'model.head.loss.num_samples': '16'}


def write_images(folder: Path, names: list[str]) -> None:
    """Image files of 40 x 36 pixels."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        cv2.imwrite(str(folder / name), rng.integers(0, 255, (36, 40, 3), np.uint8))


def write_list(path: Path, prefix: str, lines: int) -> None:
    """A list of as many lines as the real one, over four files and two classes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(f'{prefix}{i % 4}.jpg {i % 2}\n' for i in range(lines)))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The data of all sets."""
    folder = tmp_path_factory.mktemp('isogclr')
    data = folder / 'data'
    for name, data_set, number in (('cifar10', CIFAR10, 5000), ('cifar100', CIFAR100, 500)):
        names = data_set.METAINFO['classes']
        write_cifar(data / name, names, {'train': number, 'test': number // 500}, size=8)
    files = [f'{i}.jpg' for i in range(4)]
    for part, lines in (('train', 126689), ('val', 5000)):
        write_images(data / 'imagenet' / part / 'a', files)
        write_list(data / f'imagenet/meta/{part}100.txt', 'a/', lines)
    write_images(data / 'inaturalist2018/train_val2018/a', files)
    for part, lines in (('train', 437513), ('val', 24426)):
        write_list(data / f'inaturalist2018/{part}.txt', 'train_val2018/a/', lines)
    write_images(data / 'cc3m/images', files)
    lines = [f'images/{i % 4}.jpg\ta photo of number {i}' for i in range(16)]
    (data / 'cc3m/train.tsv').write_text('\n'.join(['filepath\ttitle', *lines]) + '\n')
    entries = [
        {'filename': name, 'filepath': '', 'split': part, 'sentences': [{'raw': f'photo {name}'}]}
        for part, name in zip(('val', 'val', 'test', 'test'), files)
    ]
    for tree, images in (('coco/annotations', 'coco'), ('flickr30k', 'flickr30k/flickr30k_images')):
        write_images(data / images, files)
        (data / tree).mkdir(parents=True, exist_ok=True)
        name = f'dataset_{tree.partition("/")[0]}.json'
        (data / tree / name).write_text(json.dumps({'images': entries}))
    return folder


@pytest.mark.parametrize(
    ('plan', 'set_name', 'method', 'options'),
    [
        ('unimodal', 'cifar10_400e', 'isogclr', {}),
        ('unimodal', 'cifar10_800e', 'sogclr', NARROW),
        ('unimodal', 'cifar100_400e', 'barlow_twins', NARROW),
        ('unimodal', 'cifar100_800e', 'vicreg', NARROW),
        ('unimodal', 'cifar10-lt_400e', 'isogclr', NARROW),
        ('unimodal', 'cifar10-lt_800e', 'flatclr', NARROW),
        ('unimodal', 'cifar100-lt_400e', 'isogclr', NARROW),
        ('unimodal', 'cifar100-lt_800e', 'simco', NARROW),
        ('unimodal', 'imagenet100_400e', 'isogclr', NARROW),
        ('unimodal', 'imagenet100_200e', 'spectral', NARROW),
        ('unimodal', 'inaturalist_400e', 'isogclr', NARROW),
        ('unimodal', 'inaturalist_200e', 'simclr', NARROW),
        ('temperatures', 'tau_cifar10', 'isogclr-0.1', NARROW),
        ('temperatures', 'tau_cifar100', 'sogclr-0.3', NARROW),
        ('temperatures', 'tau_imagenet100', 'isogclr-0.5', NARROW),
        ('temperatures', 'tau_cifar10-lt', 'isogclr-0.1', NARROW),
        ('temperatures', 'tau_cifar100-lt', 'isogclr-0.1', NARROW),
        ('temperatures', 'tau_inaturalist', 'isogclr-0.7', NARROW),
        ('temperatures', 'rho_cifar10', 'rho-0.1', NARROW),
        ('temperatures', 'rho_cifar100', 'rho-0.4', NARROW),
        ('temperatures', 'rho_imagenet100', 'rho-0.2', NARROW),
        ('temperatures', 'rho_cifar10-lt', 'rho-0.3', NARROW),
        ('temperatures', 'rho_cifar100-lt', 'rho-0.3', NARROW),
        ('temperatures', 'rho_inaturalist', 'rho-0.3', NARROW),
        ('temperatures', 'tau-net_cifar10', 'tau_simclr', SMALL),
        ('temperatures', 'tau-net_cifar100', 'isogclr-0.7', NARROW),
        ('temperatures', 'tau-net_cifar10-lt', 'isogclr-0.7', NARROW),
        ('temperatures', 'tau-net_cifar100-lt', 'isogclr-0.7', NARROW),
        ('captions', 'cc3m', 'isogclr', COUNTED),
        ('captions', 'cc3m_temperatures', 'fixed-0.2', PAIRS),
        ('captions', 'cc3m_individual', 'individual', COUNTED),
    ],
)
def test_set_starts(plan, set_name, method, options, folder, monkeypatch):
    start(f'{FOLDER}/{plan}.yaml', set_name, method, folder, monkeypatch, **options)
