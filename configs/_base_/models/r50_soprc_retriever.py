# ResNet-50 on SOPRC as in the paper's section 5.1, but for the step of the
# score vector: the authors' code has 0.1 where the paper has 0.001.
# num_classes is set by the inheriting config, which also requires
# mmrank.ClassCountsHook.
_base_ = './r50_retriever.py'

model = dict(
    head=dict(
        loss=dict(
            type='mmrank.SOPRCLoss',
            mode='per_class',
            prior='counts',
            max_prior=0.1,
            tau1=0.1,
            tau2=0.001,
            vector_length=100,
            momentum=0.1,
            lam1=1.0,
            lam2=1.0)))
