"""The installed pure-Python configs say what the text configs say."""

from pathlib import Path

from mmengine.config import Config

ROOT = Path(__file__).parents[2]
TEXT = 'retinanet_r50_fpn_atss_stable-ap_4xb8-512-100e_coco.py'


def _plain(node):
    """Plain containers without the scope marks of text inheritance."""
    if isinstance(node, dict):
        return {k: _plain(v) for k, v in node.items() if k != '_scope_'}
    if isinstance(node, list | tuple):
        return [_plain(v) for v in node]
    return node


def test_inherited_config_equals_the_text_config(tmp_path):
    own = tmp_path / 'own.py'
    own.write_text(
        'from mmengine.config import read_base\n'
        'with read_base():\n'
        '    from mmrank.configs.stable_ap.'
        'retinanet_r50_fpn_atss_100e_coco import *\n'
        "model['bbox_head'].update(num_classes=7)\n"
    )
    inherited = Config.fromfile(own)
    assert inherited.model.bbox_head.num_classes == 7
    text = Config.fromfile(ROOT / 'configs/stable_ap' / TEXT)
    text.model.bbox_head.num_classes = 7
    for key, value in inherited.items():
        if key == 'read_base':
            continue
        assert _plain(value) == _plain(text[key]), key
