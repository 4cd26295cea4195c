# 12 epochs of CIFAR-10-LT at 16 x 16: two and a half minutes on one CPU core.
max_epochs = 12
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=max_epochs)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(optimizer=dict(type='AdamW', lr=2e-3, weight_decay=1e-4))
param_scheduler = [
    dict(
        type='CosineAnnealingLR', T_max=max_epochs, by_epoch=True, begin=0,
        end=max_epochs, convert_to_iter_based=True)
]
auto_scale_lr = dict(base_batch_size=256)
