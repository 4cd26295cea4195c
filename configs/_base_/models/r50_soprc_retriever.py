# ResNet-50 on SOPRC with the settings of the authors' public code, which differ
# from the paper's text; configs/soprc/README.md has both. num_classes, and what
# depends on the data set, is set by the inheriting config, which also requires
# mmrank.ClassCountsHook, as in ../retrieval_runtime.py.
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
            lam2=5.0,
            semi_variance='batch')))
