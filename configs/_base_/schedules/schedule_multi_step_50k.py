# The schedule of Stanford Online Products in the SOPRC paper, with the optimiser
# of its baselines; they have the learning rate of its authors' code.
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=50000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(type='Adam', lr=1e-5, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[15000, 30000],
        gamma=0.1)
]
auto_scale_lr = dict(base_batch_size=224)
