# On sigmoid scores, one ranking per class.
loss = dict(
    type='mmrank.SmoothAPLoss',
    mode='per_class',
    activation='sigmoid',
    tau=0.1)
