# iSogCLR with a temperature for each image and each text; all else as in its CLIP
# twin. With 127 negatives rho must stay below log(127) = 4.8.
_base_ = './lite0-text_clip_grocery.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.BimodalISogCLRLoss',
            num_samples=5280,
            rho=0.3,
            tau_init=0.1,
            tau0=0.01,
            tau_max=1.0,
            eta=0.01,
            beta0=0.8)))
