# PKU VehicleID on AUC by sigmoid.
_base_ = './r50_auc-huber_56x4-100k_vehicleid.py'

model = dict(head=dict(loss=dict(surrogate='sigmoid')))
