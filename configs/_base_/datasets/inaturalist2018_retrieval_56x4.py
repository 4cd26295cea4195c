# iNaturalist-2018 by unseen species as in the SOPRC paper. Link the folder that
# holds train_val2018/ and Inat_dataset_splits/ (the lists of SmoothAP) to
# data/inaturalist2018. 575 of the 5,690 training classes, of each super-class
# alike, are the validation split, as in table 1 of the stable AP paper.
_base_ = './retrieval_224_56x4.py'

dataset_type = 'mmrank.INaturalistRetrieval'
data_root = 'data/inaturalist2018/'
num_val_classes = 575

train_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        num_val_classes=num_val_classes))
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        num_val_classes=num_val_classes))
test_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))

val_evaluator = dict(recall_at=(1, 4, 16, 32))
test_evaluator = dict(recall_at=(1, 4, 16, 32))
