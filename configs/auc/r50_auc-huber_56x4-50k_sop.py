# Stanford Online Products on AUC by the one-sided Huber surrogate.
_base_ = [
    '../_base_/retrieval_rivals_sop.py',
    '../_base_/retrieval_losses/auc-huber.py',
]

model = dict(head=dict(loss={{_base_.loss}}))
# The authors train AUC with SGD, unlike the other rivals.
optim_wrapper = dict(
    optimizer=dict(
        _delete_=True,
        type='SGD',
        lr=0.003,
        momentum=0.9,
        nesterov=True,
        weight_decay=4e-4))
param_scheduler = [
    dict(
        type='MultiStepLR', by_epoch=False, milestones=[20000, 40000],
        gamma=0.3)
]
