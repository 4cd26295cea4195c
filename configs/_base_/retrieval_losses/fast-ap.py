# FastAP, with the settings of the code of SOPRC's authors.
loss = dict(
    type='mmrank.PMLLoss', loss=dict(type='FastAPLoss', num_bins=10))
