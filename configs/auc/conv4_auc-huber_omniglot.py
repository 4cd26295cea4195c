# AUC by the one-sided Huber surrogate; all else as in its stable AP twin.
_base_ = '../stable_ap/conv4_stable-ap_omniglot.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.AUCLoss',
            mode='per_class',
            surrogate='one_sided_huber',
            tau=0.3)))
