# AdaGrad. A search finds rates of 2^-4 to 2^-3 for the square loss and of 2^-2 to
# 2^-1 for the logistic one; this one is between them.
default_scope = 'mmengine'
optim_wrapper = dict(optimizer=dict(type='Adagrad', lr=2**-3))
train_cfg = dict(by_epoch=True, max_epochs=20, val_interval=1)
val_cfg = dict()
test_cfg = dict()
custom_hooks = [dict(type='mmrank.PairCountsHook')]
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=10),
    checkpoint=dict(
        type='mmrank.AtomicCheckpointHook',
        interval=1,
        max_keep_ckpts=2,
        save_best='top_k/precision@5',
        rule='greater'))
log_processor = dict(by_epoch=True)
randomness = dict(seed=0)
