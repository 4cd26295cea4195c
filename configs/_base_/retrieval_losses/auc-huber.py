# AUC by the one-sided Huber surrogate, with the settings of the code of SOPRC's authors.
loss = dict(
    type='mmrank.AUCLoss',
    mode='per_class',
    surrogate='one_sided_huber',
    tau=0.1)
