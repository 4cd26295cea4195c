# The iSogCLR paper's linear evaluation: SGD with Nesterov momentum from 30.0,
# times 0.2 after 40, 60 and 80 of 100 epochs.
train_cfg = dict(by_epoch=True, max_epochs=100, val_interval=10)
val_cfg = dict()
test_cfg = dict()

optim_wrapper = dict(
    optimizer=dict(
        type='SGD', lr=30.0, momentum=0.9, nesterov=True, weight_decay=0.0))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=True, milestones=[40, 60, 80], gamma=0.2)
]
