# iNaturalist-2018 on AUC by sigmoid.
_base_ = './r50_auc-huber_56x4-130k_inaturalist.py'

model = dict(head=dict(loss=dict(surrogate='sigmoid')))
