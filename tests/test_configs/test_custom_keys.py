"""A custom key of paramwise_cfg names what it means: mmengine takes every name that contains it."""

import re

import pytest
from mmengine.registry import MODELS, init_default_scope
from published_configs import LEAVES, read

pytest.importorskip('mmpretrain')
pytest.importorskip('timm')


def strangers(key: str, names: list[str]) -> list[str]:
    """Names with the key inside of a longer word, such as ``head`` in ``conv_head``.

    A number may follow: ``bn`` means ``bn1``.
    """
    number = '' if key[-1].isdigit() else r'\d*'
    whole = re.compile(rf'(^|\.){re.escape(key)}{number}(\.|$)')
    return [name for name in names if key in name and not whole.search(name)]


def test_custom_keys_take_no_layer_by_chance():
    init_default_scope('mmpretrain')
    for path in LEAVES:
        cfg = read(path)
        keys = cfg.get('optim_wrapper', {}).get('paramwise_cfg', {}).get('custom_keys')
        # Two read files of their data sets when they are built; one of the LARS schedule stands
        # for all.
        if not keys or path.stem.startswith(('r50-distilbert', 'lite0-text')):
            continue
        if path.parent.name == 'isogclr' and path.stem != 'r18_isogclr_128-400e_cifar10':
            continue
        names = [name for name, _ in MODELS.build(cfg.model).named_parameters()]
        for key in keys:
            assert not strangers(key, names), f'{key!r} of {path.name} takes more than it names'
