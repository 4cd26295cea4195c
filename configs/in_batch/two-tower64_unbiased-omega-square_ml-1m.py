# Unbiased, the negatives weighted (25), square. omega is (|Ohat| - 1) / (|O| - 1)
# of the batch ratio 0.1. All else as in its unbiased twin.
_base_ = 'two-tower64_unbiased-logistic_ml-1m.py'

model = dict(
    loss=dict(mode='unbiased_omega', pointwise='square', omega=0.316))
