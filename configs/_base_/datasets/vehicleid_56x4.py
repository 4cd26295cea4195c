# PKU VehicleID as in the SOPRC paper. Link the folder that holds
# train_test_split/ and image/ to data/VehicleID. Tested on the large list;
# test_dataloader.dataset.test_size=small or medium for the others. As in the
# papers every test image searches all others of its list, see
# mmrank/datasets/retrieval/vehicle_id.py.
_base_ = './retrieval_224_56x4.py'

dataset_type = 'mmrank.VehicleID'
data_root = 'data/VehicleID/'

train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = dict(
    dataset=dict(type=dataset_type, data_root=data_root, test_size='large'))
