# mmpretrain's focal loss of each class.
loss = dict(type='mmpretrain.FocalLoss', gamma=2.0, alpha=0.25)
