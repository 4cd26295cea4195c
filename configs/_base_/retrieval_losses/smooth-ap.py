# SmoothAP, with the settings of the code of SOPRC's authors.
loss = dict(type='mmrank.SmoothAPLoss', mode='per_class', tau=0.01)
