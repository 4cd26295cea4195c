# A user's own images, one folder a class, with the settings of the SOPRC paper.
# Put or link the folder of the class folders to data/class_folder, or set
# data_root. Half of the classes are for testing, a tenth of the others for
# validation; the same classes on every machine. Fewer classes than a batch
# holds: lower batch_size of loader and sampler alike.
_base_ = './retrieval_224_56x4.py'

data_root = 'data/class_folder/'
dataset = dict(
    type='mmrank.ClassFolder',
    data_root=data_root,
    test_fraction=0.5,
    val_fraction=0.1)

train_dataloader = dict(dataset=dataset)
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
del dataset
