# iSogCLR with a temperature for each image and each text; all else as in its CLIP
# twin. With 255 negatives rho must stay below log(255) = 5.5. A pair is seen ten
# times in a training, so the temperatures take larger steps than at full size.
_base_ = './conv3-text_clip_cifar10-captions.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.BimodalISogCLRLoss',
            num_samples=16338,
            rho=2.0,
            tau_init=0.1,
            tau0=0.01,
            tau_max=0.5,
            eta=0.01,
            beta0=0.8)))
