# The baseline of retrieval.py: the same network, data and schedule, SmoothAP.
_base_ = './retrieval.py'
model = dict(
    head=dict(
        loss=dict(
            _delete_=True, type='mmrank.SmoothAPLoss', mode='per_class',
            tau=0.03)))
