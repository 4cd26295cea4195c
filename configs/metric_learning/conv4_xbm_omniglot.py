# Contrastive loss with a cross-batch memory of one training set.
_base_ = './conv4_contrastive_omniglot.py'

model = dict(head=dict(memory=dict(size=1320, dim=64, start_iter=50)))
