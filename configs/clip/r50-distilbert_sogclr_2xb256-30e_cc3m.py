# SogCLR with one fixed temperature; all else as in its CLIP twin. num_samples: the
# lines of train.tsv.
_base_ = './r50-distilbert_clip_2xb256-30e_cc3m.py'

model = dict(
    head=dict(
        loss=dict(
            _delete_=True,
            type='mmrank.SogCLRLoss',
            num_samples=2900000,
            bimodal=True,
            tau=0.01,
            beta0=0.8)))
