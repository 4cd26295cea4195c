# 1 - s of pairs of one class and s - 0.5 of those of two, where above 0, summed
# over the batch, as in the code of SOPRC's authors.
loss = dict(
    type='mmrank.PMLLoss',
    loss=dict(
        type='ContrastiveLoss',
        pos_margin=1.0,
        neg_margin=0.5,
        distance=dict(type='CosineSimilarity'),
        reducer=dict(type='SumReducer')))
