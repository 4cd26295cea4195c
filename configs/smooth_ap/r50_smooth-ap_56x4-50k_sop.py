# Stanford Online Products on SmoothAP, in the setting in which the SOPRC paper trains its
# baselines: model and data of SOPRC, and Adam at the learning rate of its authors' code.
# The other losses and data sets are rows and sets of tools/research/papers/soprc/losses.yaml.
_base_ = [
    '../_base_/retrieval_runtime.py',
    '../_base_/models/r50_smooth-ap_retriever.py',
    '../_base_/datasets/sop_56x4.py',
    '../_base_/schedules/schedule_multi_step_50k.py',
]

model = dict(head=dict(num_classes=10181))
