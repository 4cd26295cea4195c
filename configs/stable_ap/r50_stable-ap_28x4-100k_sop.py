# Stanford Online Products on stable AP, the paper's settings. Beside them:
# configs/stable_ap/README.md, "The paper's settings".
_base_ = [
    '../_base_/retrieval_exact_runtime.py',
    '../_base_/models/r50_stable-ap_retriever.py',
    '../_base_/datasets/sop_28x4.py',
    '../_base_/schedules/schedule_sum_100k.py',
]

model = dict(head=dict(num_classes=10181))
