# Stanford Online Products on AUC by sigmoid.
_base_ = './r50_auc-huber_56x4-50k_sop.py'

model = dict(head=dict(loss=dict(surrogate='sigmoid')))
