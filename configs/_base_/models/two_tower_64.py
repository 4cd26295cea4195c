# Two embedding tables of width 64, as in the paper; their sizes are those of
# the shared copy of MovieLens-1M.
model = dict(
    type='mmrank.TwoTower',
    left=dict(type='mmrank.EmbeddingTower', num_entities=6018, channels=64),
    right=dict(type='mmrank.EmbeddingTower', num_entities=3018, channels=64),
    loss=dict(
        type='mmrank.InBatchLoss', mode='unbiased', pointwise='logistic'),
    top_k=25)
