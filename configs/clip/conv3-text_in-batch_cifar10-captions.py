# The two-tower loss without in-batch bias: images and captions with the counts of
# their pairs, plain inner products; all else as in the CLIP config.
_base_ = './conv3-text_clip_cifar10-captions.py'

model = dict(
    normalize=False,
    head=dict(
        _delete_=True,
        type='mmrank.ImageTextInBatchHead',
        loss=dict(
            type='mmrank.InBatchLoss',
            mode='unbiased_omega',
            omega=0.1,
            pointwise='logistic')))
custom_hooks = [
    dict(type='mmrank.PairCountsHook'),
    dict(type='mmrank.RNGStateHook'),
]
