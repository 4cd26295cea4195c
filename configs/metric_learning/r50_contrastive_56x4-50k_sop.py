# Stanford Online Products on: Contrastive loss.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(
                type='ContrastiveLoss', pos_margin=0.0, neg_margin=0.5))))
