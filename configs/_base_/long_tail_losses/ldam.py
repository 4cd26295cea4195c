# Scores are free, not cosines: no factor of 30. The schedule sets when
# mmrank.DeferredReweightingHook starts the weights.
loss = dict(
    type='mmrank.LDAMLoss', max_margin=0.5, scale=1.0, reweight_beta=0.9999)
