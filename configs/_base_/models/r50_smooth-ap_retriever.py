# ResNet-50 on SmoothAP. num_classes is set by the inheriting config.
_base_ = './r50_retriever.py'

model = dict(
    head=dict(loss=dict(type='mmrank.SmoothAPLoss', mode='per_class')))
