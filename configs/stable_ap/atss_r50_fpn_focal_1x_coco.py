# The focal twin of atss_r50_fpn_stable-ap_1x_coco.py: mmdet's own config.
_base_ = 'mmdet::atss/atss_r50_fpn_1x_coco.py'
