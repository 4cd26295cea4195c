# Grocery photographs with the name and the description of their product, on
# stored features of the whole frozen network; the published split of 2,640, 296
# and 2,485 photographs, two captions each. Make data/grocery with
# tools/dataset_converters/grocery.py and data/grocery/pooled with
#   python tools/dataset_converters/cache_features.py \
#       configs/metric_learning/efficientnet-lite0_frozen_grocery.py \
#       data/grocery/pooled --pool --views 4 \
#       --cfg-options model.image_encoder.0.frozen_stages=8
dataset_type = 'mmrank.CaptionTable'
data_root = 'data/grocery/'
classes = data_root + 'products.txt'
cache = data_root + 'pooled'

# The stored features are no pixels.
data_preprocessor = dict(
    type='mmpretrain.ClsDataPreprocessor', mean=None, std=None, to_rgb=False)

pack_inputs = dict(
    type='PackInputs',
    algorithm_keys=['text'],
    meta_keys=['sample_idx', 'image_id', 'text_id', 'img_path'])
train_pipeline = [
    dict(type='mmrank.LoadCachedFeatures', cache=cache, random_view=True),
    pack_inputs,
]
test_pipeline = [
    dict(type='mmrank.LoadCachedFeatures', cache=cache), pack_inputs
]
dataset = dict(
    type=dataset_type, data_root=data_root, label_key='label', classes=classes)

# Without workers a resumed run is exact at every iteration.
train_dataloader = dict(
    batch_size=128,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(
        type='mmrank.InBatchPairSampler', batch_size=128, infinite=True),
    dataset=dict(
        dataset, ann_file='captions_train.jsonl', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=512,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        dataset,
        ann_file='captions_val.jsonl',
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    batch_size=512,
    num_workers=0,
    persistent_workers=False,
    collate_fn=dict(type='mmrank.one_size_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        dataset,
        ann_file='captions_test.jsonl',
        test_mode=True,
        pipeline=test_pipeline))
del dataset

# All photographs of a product share its captions, so any of them is one to find.
val_evaluator = [
    dict(
        type='mmrank.ImageTextRetrievalMetric', recall_at=(1, 10),
        merge_texts=True),
    dict(type='mmpretrain.Accuracy', topk=(1, 5)),
]
test_evaluator = val_evaluator
