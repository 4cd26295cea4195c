# As contrastive.py, for each of the 224 queries the mean; the code of SOPRC's
# authors has 60,000 entries.
loss = dict(
    type='mmrank.PMLLoss',
    loss=dict(
        type='ContrastiveLoss',
        pos_margin=1.0,
        neg_margin=0.5,
        distance=dict(type='CosineSimilarity'),
        reducer=dict(type='SumReducer')),
    loss_weight=1 / 224)
