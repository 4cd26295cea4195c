# iSogCLR with a temperature for each image and each text; all else as in its CLIP
# twin. With 127 negatives rho must stay below log(127) = 4.8. A pair is seen five
# times in a training, so the temperatures take larger steps than at full size.
_base_ = './conv3-text_clip_cifar10-captions.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.BimodalISogCLRLoss',
            num_samples=8168,
            rho=0.4,
            tau_init=0.2,
            tau0=0.01,
            tau_max=1.0,
            eta=0.05,
            beta0=0.8)))
