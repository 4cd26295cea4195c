# AUC by sigmoid, with the settings of the code of SOPRC's authors.
loss = dict(
    type='mmrank.AUCLoss', mode='per_class', surrogate='sigmoid', tau=0.1)
