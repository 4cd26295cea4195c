# Unbiased loss (17), logistic, on ratings.dat itself: 6,038 users have a
# rating of 4 or 5, and 3,533 films. A sparse gradient of the tables.
_base_ = [
    '../_base_/models/two_tower_64.py',
    '../_base_/datasets/movielens-1m_dat.py',
    '../_base_/schedules/schedule_two_tower.py',
]

model = dict(left=dict(num_entities=6038), right=dict(num_entities=3533))
