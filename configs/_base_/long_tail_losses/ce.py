# mmpretrain's binary cross-entropy of each class.
loss = dict(type='mmpretrain.CrossEntropyLoss', use_sigmoid=True)
