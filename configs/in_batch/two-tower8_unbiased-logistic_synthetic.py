# Made-up interactions, half a second an epoch: to try the tools out.
_base_ = [
    '../_base_/models/two_tower_64.py',
    '../_base_/datasets/synthetic_interactions.py',
    '../_base_/schedules/schedule_two_tower.py',
]

model = dict(
    left=dict(num_entities=200, channels=8),
    right=dict(num_entities=100, channels=8))
