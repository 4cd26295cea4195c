# Stanford Online Products on: Contrastive loss with a cross-batch memory.
_base_ = '../_base_/retrieval_rivals_sop.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.PMLLoss',
            loss=dict(
                type='ContrastiveLoss', pos_margin=0.0, neg_margin=0.5)),
        memory=dict(size=55100, dim=512, start_iter=1000)))
