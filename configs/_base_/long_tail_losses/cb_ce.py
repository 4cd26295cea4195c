# Weights by the effective number; mmrank.ClassCountsHook tells the counts.
loss = dict(type='mmrank.ClassBalancedCELoss', beta=0.9999)
