# On cosines, summed over the triplets of each of the 224 queries, as in the code
# of SOPRC's authors.
loss = dict(
    type='mmrank.PMLLoss',
    loss=dict(
        type='TripletMarginLoss',
        margin=0.1,
        distance=dict(type='CosineSimilarity'),
        reducer=dict(type='SumReducer')),
    loss_weight=1 / 224)
