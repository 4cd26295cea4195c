# Zero-shot retrieval on COCO's 5,000 test images, for any checkpoint of the CC3M
# configs.
_base_ = './r50-distilbert_clip_2xb256-30e_cc3m.py'

test_dataloader = dict(
    dataset=dict(
        data_root='data/coco/',
        ann_file='annotations/dataset_coco.json',
        data_prefix='',
        split='test'))
