# Stanford Online Products on SOPRC with the settings of the authors' public code; those
# that the paper prints stand beside them in configs/soprc/README.md. The other
# data sets are sets of tools/research/papers/soprc/losses.yaml.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_soprc_retriever.py',
    '../_base_/datasets/sop_56x4.py',
    '../_base_/schedules/schedule_multi_step_50k.py',
]

model = dict(
    head=dict(
        num_classes=10181,
        loss=dict(
            max_prior=0.01)))
optim_wrapper = dict(
    optimizer=dict(
        type='SGD',
        lr=0.003,
        momentum=0.9,
        nesterov=True))
