# iNaturalist-2018 as imagenet100_simclr_224.py. data/inaturalist2018 holds
# train_val2018/; make the lists with
#   python tools/dataset_converters/image_list.py inaturalist train2018.json \
#       data/inaturalist2018/train.txt
# and the same for val. num_samples of the loss: 437513.
_base_ = './imagenet100_simclr_224.py'

images = dict(
    type='mmpretrain.CustomDataset',
    data_root='data/inaturalist2018/',
    data_prefix='',
    ann_file='train.txt')
train_dataloader = dict(
    dataset=dict(images, _delete_=True, pipeline=_base_.train_pipeline))
labelled = dict(images, pipeline=_base_.test_pipeline)
test_dataloader = dict(
    dataset=dict(datasets=[labelled, dict(labelled, ann_file='val.txt')]))
val_dataloader = test_dataloader
