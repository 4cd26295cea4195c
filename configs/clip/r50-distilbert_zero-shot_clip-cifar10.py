# Zero-shot classification of CIFAR-10, for any checkpoint of the CC3M configs.
_base_ = './r50-distilbert_clip_2xb256-30e_cc3m.py'

model = dict(
    zero_shot=dict(classes='cifar10', templates=('a photo of a {}.', )))

test_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='CIFAR10',
        data_root='data/cifar10/',
        split='test',
        pipeline=[
            dict(
                type='Resize', scale=(256, 256), interpolation='bicubic'),
            dict(type='PackInputs'),
        ]))
test_evaluator = dict(
    _delete_=True, type='mmpretrain.Accuracy', topk=(1, 3, 5))
