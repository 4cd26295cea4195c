# Unbiased loss (17), logistic.
_base_ = [
    '../_base_/models/two_tower_64.py',
    '../_base_/datasets/ml-1m.py',
    '../_base_/schedules/schedule_two_tower.py',
]
