# Images and captions in one space, trained as CLIP is. Data, 300 images:
#   python tools/dataset_converters/make_shapes_coco.py --out data/shapes_text \
#       --num-train 300 --num-val 1 --num-test 0 --image-size 64 64 \
#       --object-size 16 40 --mean-objects 2 --num-classes 4
#   python tools/dataset_converters/make_captions.py --size 64 \
#       data/shapes_text/annotations/train.json data/captions \
#       --images data/shapes_text/train
_base_ = ['mmpretrain::_base_/default_runtime.py',
          '../_base_/models/conv3-text_clip_dual_encoder.py']
pack = dict(type='PackInputs', algorithm_keys=['text'],
            meta_keys=['sample_idx', 'image_id', 'text_id'])
data = dict(type='mmrank.CaptionTable', data_root='data/captions/',
            pipeline=[dict(type='LoadImageFromFile'), pack])
loader = dict(num_workers=0, persistent_workers=False,
              collate_fn=dict(type='mmrank.one_size_collate'))
data_preprocessor = dict(type='mmpretrain.ClsDataPreprocessor',
                         mean=[127.5] * 3, std=[60] * 3)
model = dict(
    zero_shot=None,
    head=dict(loss=dict(type='mmrank.CLIPLoss', tau=0.2)))
train_dataloader = dict(
    batch_size=80,  # of the sampler, too
    sampler=dict(type='mmrank.InBatchPairSampler', batch_size=80),
    dataset=dict(data, ann_file='train.jsonl'), **loader)
val_dataloader = dict(
    batch_size=100, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(data, ann_file='val.jsonl', test_mode=True), **loader)
# Several images share a caption: any of them is right.
val_evaluator = dict(type='mmrank.ImageTextRetrievalMetric',
                     recall_at=(1, 5), merge_texts=True)
train_cfg = dict(by_epoch=True, max_epochs=8, val_interval=4)
val_cfg = dict()
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=3e-3))
custom_hooks = [dict(type='mmrank.SampleIndexHook'),
                dict(type='mmrank.RankingMonitorHook')]
randomness = dict(seed=0)
