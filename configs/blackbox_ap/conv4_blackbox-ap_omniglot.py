# BlackBox AP; all else as in its stable AP twin.
_base_ = '../stable_ap/conv4_stable-ap_omniglot.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.BlackBoxAPLoss',
            mode='per_class',
            lam=4.0,
            margin=0.02)))
