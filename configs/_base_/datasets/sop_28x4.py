# Stanford Online Products as in the stable AP paper. Link the folder that holds
# Ebay_train.txt and Ebay_test.txt to data/Stanford_Online_Products. One tenth
# of the training classes of each super-class is the validation split; to train
# on all of them: train_dataloader.dataset.split=trainval.
_base_ = './retrieval_224_28x4.py'

dataset_type = 'mmrank.StanfordOnlineProducts'
data_root = 'data/Stanford_Online_Products/'

train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
