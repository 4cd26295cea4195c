# lam and margin of the code of SOPRC's authors. It also ranks all pairs of the
# batch in one list, at a weight of 0.9, draws the margin of each score at random,
# and keeps the score matrices of 20 batches; none of this is here.
loss = dict(
    type='mmrank.BlackBoxAPLoss', mode='per_class', lam=5.0, margin=0.15)
