# Unbiased (17), square loss.
_base_ = 'two-tower64_unbiased-logistic_ml-1m.py'

model = dict(
    loss=dict(mode='unbiased', pointwise='square'))
