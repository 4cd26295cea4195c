# Retrieval in the stable AP paper, section 7.1: SUM with momentum 0.9 and s 1
# (Nesterov), batches of 112. Learning rate and steps are those of Stanford
# Online Products.
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=100000, val_interval=10000)
optim_wrapper = dict(
    optimizer=dict(
        type='mmrank.SUM', lr=0.003, momentum=0.9, s=1.0, weight_decay=4e-5))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[60000, 80000],
        gamma=0.1)
]
auto_scale_lr = dict(base_batch_size=112)
