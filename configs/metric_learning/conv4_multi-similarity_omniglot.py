# Multi-similarity loss; all else as in its stable AP twin.
_base_ = '../stable_ap/conv4_stable-ap_omniglot.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.PMLLoss',
            loss=dict(
                type='MultiSimilarityLoss', alpha=2.0, beta=50.0, base=0.5),
            miner=dict(type='MultiSimilarityMiner', epsilon=0.1))))
