# RetinaNet on stable AP with the settings of the paper's section 7.2: one
# square anchor per location, ATSS assignment, frozen batch norm, 512x512,
# batch 32, lr 0.008, SUM with beta 0.9 and s 0, 100 epochs. Published: 41.4
# mAP on COCO test-dev. We have not trained it.
_base_ = [
    '../_base_/coco_512/retinanet_r50_fpn_atss.py',
    '../_base_/datasets/coco_512_ssd_augmentation.py',
    '../_base_/schedules/schedule_512_100e.py',
    '../_base_/coco_512/runtime.py',
]

model = dict(
    bbox_head=dict(
        type='mmrank.ListwiseHead',
        head_type='mmdet.RetinaHead',
        loss_cls=dict(
            _delete_=True,
            type='mmrank.StableAPLoss',
            mode='flatten',
            quality=0,
            # rho is left at 'auto': the n-/n+ of OP1, capped until the argument
            # of h gets there. Section 7.2 prints the objective without rho.
            mean_mode='exact',
            momentum=0.01,
            a=0.1,
            t=2.0,
            # The paper squares the sum of the positive scores; the square of
            # their mean does not grow with the batch.
            score_penalty=0.001)))

# mean_mode='exact' scores each batch again under the previous weights.
custom_hooks = [
    dict(type='mmrank.PreviousWeightsHook'),
    *_base_.custom_hooks,
]
