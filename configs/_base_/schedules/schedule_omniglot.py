# 300 iterations of 112 images: about half a minute on one CPU core. The
# learning rate is tuned by configs/soprc/omniglot_losses.yaml.
max_iters = 300
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=3e-3, weight_decay=4e-4))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_iters, by_epoch=False, begin=0,
        end=max_iters)
]
auto_scale_lr = dict(base_batch_size=112)
