# Stanford Online Products as in the stable AP paper. Link the folder that holds
# Ebay_train.txt and Ebay_test.txt to data/Stanford_Online_Products. 1,137 of the
# 11,318 training classes, of each super-class alike, are the validation split,
# as in table 1 of the stable AP paper; to train on all of them:
# train_dataloader.dataset.split=trainval.
_base_ = './retrieval_224_28x4.py'

dataset_type = 'mmrank.StanfordOnlineProducts'
data_root = 'data/Stanford_Online_Products/'
num_val_classes = 1137

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
