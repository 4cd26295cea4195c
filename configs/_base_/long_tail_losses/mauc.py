# AUC of every class against every other one, on sigmoid scores.
loss = dict(
    type='mmrank.MAUCLoss', surrogate='square', tau=1.0, activation='sigmoid')
