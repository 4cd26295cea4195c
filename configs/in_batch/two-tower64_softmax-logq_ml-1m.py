# Softmax over the batch with the logQ correction, a rival in practice; all else as
# in its unbiased twin. Shares are those of the training pairs: in batches of 26,652
# most items are in every one, so the streaming estimate could not tell them apart.
_base_ = 'two-tower64_unbiased-logistic_ml-1m.py'

model = dict(
    loss=dict(
        _delete_=True, type='mmrank.InBatchSoftmaxLoss', frequency='counts'))
