# iNaturalist-2018 by unseen species as in the stable AP paper. Link the folder that
# holds train_val2018/ and Inat_dataset_splits/ (the lists of SmoothAP) to
# data/inaturalist2018.
_base_ = './retrieval_224_28x4.py'

dataset_type = 'mmrank.INaturalistRetrieval'
data_root = 'data/inaturalist2018/'

train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
