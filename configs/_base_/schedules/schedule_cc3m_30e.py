# iSogCLR's settings for CC3M: AdamW, 1,000 iterations of warm-up, cosine, 30
# epochs, batches of 512.
train_cfg = dict(by_epoch=True, max_epochs=30, val_interval=1)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=2e-4, weight_decay=0.02),
    paramwise_cfg=dict(custom_keys=dict(log_tau=dict(decay_mult=0.0))))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.05, by_epoch=False, begin=0,
        end=1000),
    dict(
        type='CosineAnnealingLR', by_epoch=True, begin=0, T_max=30, end=30,
        eta_min=1e-6, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=512)
