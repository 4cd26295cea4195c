# CIFAR-10, all images, as cifar10_lt_simclr_224.py. num_samples of the loss:
# 50000.
_base_ = './cifar10_lt_simclr_224.py'

train_dataloader = dict(dataset=dict(imbalance_ratio=1))
