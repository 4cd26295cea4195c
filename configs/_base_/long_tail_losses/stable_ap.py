# On sigmoid scores, one ranking and one mean positive score per class.
loss = dict(
    type='mmrank.StableAPLoss',
    mode='per_class',
    activation='sigmoid',
    rho='batch',
    tau=0.3,
    score_range=(0.0, 1.0),
    score_penalty=0.0,
    momentum=0.01)
