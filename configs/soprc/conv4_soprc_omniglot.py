# SOPRC; all else as in conv4_stable-ap_omniglot.py. V is the number of images of a
# class, the most that the paper allows.
_base_ = '../stable_ap/conv4_stable-ap_omniglot.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.SOPRCLoss',
            mode='per_class',
            prior='counts',
            max_prior=0.1,
            tau1=0.1,
            tau2=0.02,
            vector_length=20,
            momentum=0.1)))
custom_hooks = [
    dict(type='mmrank.ClassCountsHook'),
    dict(type='mmrank.RankingMonitorHook'),
    dict(type='mmrank.RNGStateHook'),
]
