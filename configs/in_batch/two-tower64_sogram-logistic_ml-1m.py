# Sogram (34): two samples a step, logistic; all else as in its unbiased twin.
_base_ = 'two-tower64_unbiased-logistic_ml-1m.py'

model = dict(
    loss=dict(mode='sogram', pointwise='logistic'))
# Both samples of a step.
train_dataloader = dict(batch_size=53304, dataset=dict(sampling='sogram'))
