# positive_rate sets the positives in each batch: the plot of
# configs/long_tail/positive_rate.yaml.
_base_ = './smallconv_soprc_cifar10-binary-lt-16.py'

train_dataloader = dict(
    sampler=dict(
        _delete_=True,
        type='mmrank.PositiveRateSampler',
        batch_size=128,
        positive_rate=0.1,
        infinite=True))
