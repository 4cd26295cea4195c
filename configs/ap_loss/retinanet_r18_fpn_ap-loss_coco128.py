# Overfit check of AP-Loss; all else as in the stable AP twin.
_base_ = '../stable_ap/retinanet_r18_fpn_stable-ap_coco128.py'

model = dict(
    bbox_head=dict(
        loss_cls=dict(_delete_=True, type='mmrank.APLoss')))
