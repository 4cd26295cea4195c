# Stable AP with the cross-batch memory of conv4_xbm_omniglot.py.
_base_ = './conv4_stable-ap_omniglot.py'

model = dict(head=dict(memory=dict(size=1320, dim=64, start_iter=50)))
