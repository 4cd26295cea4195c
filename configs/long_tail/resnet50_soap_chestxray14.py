_base_ = [
    '../_base_/models/resnet50_one_vs_rest.py',
    '../_base_/datasets/chest_xray14_224.py',
    '../_base_/schedules/schedule_long_tail_chestxray14.py',
    '../_base_/long_tail_losses/soap.py',
]

# All images of the data set.
model = dict(head=dict(loss=dict(_base_.loss, num_samples=112120)))
