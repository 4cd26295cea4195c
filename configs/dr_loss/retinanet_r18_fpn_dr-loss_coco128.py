# Overfit check of DR loss; all else as in the stable AP twin.
_base_ = '../stable_ap/retinanet_r18_fpn_stable-ap_coco128.py'

model = dict(
    bbox_head=dict(
        # With all classes in one list the rarest one was never learnt.
        loss_cls=dict(
            _delete_=True, type='mmrank.DRLoss', mode='per_class')))
