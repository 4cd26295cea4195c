# iSogCLR on CIFAR-10: batch 128 in all, 400 epochs. Other losses, data and epochs of
# the paper are sets of tools/research/papers/isogclr/unimodal.yaml.
_base_ = [
    '../_base_/datasets/cifar10_simclr_224.py',
    '../_base_/models/r18_vicreg-projector_two-view.py',
    '../_base_/schedules/schedule_lars_400e.py',
    '../_base_/selfsup_runtime.py',
]

model = dict(
    loss=dict(
        _delete_=True,
        type='mmrank.ISogCLRLoss',
        num_samples=50000,
        rho=0.2,
        tau_init=0.7,
        tau0=0.05,
        tau_max=1.0,
        eta=0.03,
        beta0=0.9,
        beta1=0.5,
        gradient_clip=3.0))
auto_scale_lr = dict(base_batch_size=128)
