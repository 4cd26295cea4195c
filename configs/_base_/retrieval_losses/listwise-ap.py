# List-wise AP (DIR), with the settings of the code of SOPRC's authors.
loss = dict(type='mmrank.ListwiseAPLoss', mode='per_class', num_bins=20)
