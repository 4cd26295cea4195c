# SmoothAP; all else as in conv4_stable-ap_omniglot.py.
_base_ = '../stable_ap/conv4_stable-ap_omniglot.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.SmoothAPLoss',
            mode='per_class')))
