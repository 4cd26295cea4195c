# All pairs: the code of SOPRC's authors has no miner, and beta 40.
loss = dict(
    type='mmrank.PMLLoss',
    loss=dict(
        type='MultiSimilarityLoss',
        alpha=2.0,
        beta=40.0,
        base=0.5,
        reducer=dict(type='MeanReducer')))
