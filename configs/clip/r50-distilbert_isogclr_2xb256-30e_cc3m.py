# iSogCLR; all else as in the CLIP config. num_samples: the lines of train.tsv. The
# paper tunes beta0 in 0.7, 0.8, 0.9 and rho in 5.8, 6.0, 6.2, 6.4. It states
# neither eta, beta1, the largest temperature nor the bound of G: these are those
# of the authors' code, see configs/clip/README.md.
_base_ = './r50-distilbert_clip_2xb256-30e_cc3m.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.BimodalISogCLRLoss',
            num_samples=2900000,
            rho=6.0,
            tau_init=0.01,
            tau0=0.005,
            tau_max=0.05,
            eta=1e-5,
            beta0=0.8,
            beta1=0.5,
            gradient_clip=5.0)))
