# Zero-shot classification of ImageNet-1K, for any checkpoint of the CC3M configs.
_base_ = './r50-distilbert_clip_2xb256-30e_cc3m.py'

model = dict(
    zero_shot=dict(classes='imagenet', templates=('a photo of a {}.', )))

test_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='ImageNet',
        data_root='data/imagenet/',
        split='val',
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(
                type='ResizeEdge', scale=256, edge='short',
                interpolation='bicubic'),
            dict(type='CenterCrop', crop_size=256),
            dict(type='PackInputs'),
        ]))
test_evaluator = dict(
    _delete_=True, type='mmpretrain.Accuracy', topk=(1, 3, 5))
