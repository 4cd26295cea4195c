# On sigmoid scores, one list and one v per class; mmrank.ClassCountsHook tells
# the priors.
loss = dict(
    type='mmrank.SOPRCLoss',
    mode='per_class',
    activation='sigmoid',
    prior='counts',
    tau1=0.3,
    tau2=0.02,
    vector_length=100,
    score_range=(0.0, 1.0))
