# On sigmoid scores. num_samples may be larger than the training set: CIFAR
# has 60,000 images in all.
loss = dict(
    type='mmrank.SOAPLoss',
    num_samples=60000,
    activation='sigmoid',
    margin=1.0,
    gamma=0.9)
