# Overfit check of aLRP loss; all else as in the stable AP twin.
_base_ = '../stable_ap/retinanet_r18_fpn_stable-ap_coco128.py'

model = dict(
    bbox_head=dict(
        loss_cls=dict(
            _delete_=True,
            type='mmrank.ALRPLoss',
            # Iterations of an epoch of 128 images.
            balance_period=16),
        # (1 - GIoU)/2: the localisation error of the paper.
        loss_bbox=dict(loss_weight=0.5)))
