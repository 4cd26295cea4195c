# Contrastive loss; all else as in its stable AP twin.
_base_ = '../stable_ap/conv4_stable-ap_omniglot.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.PMLLoss',
            loss=dict(type='ContrastiveLoss', pos_margin=0.0, neg_margin=0.5))))
