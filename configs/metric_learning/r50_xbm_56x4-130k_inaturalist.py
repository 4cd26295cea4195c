# iNaturalist-2018 on Contrastive loss with a cross-batch memory.
_base_ = [
    '../_base_/retrieval_rivals_inaturalist.py',
    '../_base_/retrieval_losses/xbm.py',
]

model = dict(
    head=dict(
        loss={{_base_.loss}},
        memory=dict(size=60000, dim=512, start_iter=10000)))
