# On sigmoid scores, one ranking and one mean positive score per class. The mean
# is tracked by eq. 6, which mmrank.PreviousWeightsHook serves.
loss = dict(
    type='mmrank.StableAPLoss',
    mode='per_class',
    reduction='sum',
    activation='sigmoid',
    tau=0.3,
    score_range=(0.0, 1.0),
    score_penalty=0.0,
    mean_mode='exact',
    momentum=0.01)
