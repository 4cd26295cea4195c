"""Configs in mmengine's pure-Python style, to inherit from when installed.

In a config of your own::

    from mmengine.config import read_base

    with read_base():
        from mmrank.configs.stable_ap.retinanet_r50_fpn_atss_100e_coco import *

    model['bbox_head'].update(num_classes=3)
"""
