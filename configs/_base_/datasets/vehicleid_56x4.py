# PKU VehicleID as in the SOPRC paper. Link the folder that holds
# train_test_split/ and image/ to data/VehicleID. Tested on the large list;
# test_dataloader.dataset.test_size=small or medium for the others. As in the
# papers every test image searches all others of its list, see
# mmrank/datasets/retrieval/vehicle_id.py. 1,317 of the 13,134 training classes
# are the validation split, as in table 1 of the stable AP paper (which prints
# 11,847 for the rest, 30 more than there are).
_base_ = './retrieval_224_56x4.py'

dataset_type = 'mmrank.VehicleID'
data_root = 'data/VehicleID/'
num_val_classes = 1317

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
test_dataloader = dict(
    dataset=dict(type=dataset_type, data_root=data_root, test_size='large'))

val_evaluator = dict(recall_at=(1, 5))
test_evaluator = dict(recall_at=(1, 5))
