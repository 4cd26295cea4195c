# The last stages of EfficientNet-Lite0 on grocery photographs themselves, for
# tools/dataset_converters/cache_features.py; with the schedule of another config
# it trains what the cached configs train, on new random views at each visit.
_base_ = [
    'mmpretrain::_base_/default_runtime.py',
    '../_base_/models/efficientnet-lite0_last-stages_retriever.py',
    '../_base_/datasets/grocery_128_pk.py',
]
val_dataloader = None
val_cfg = None
val_evaluator = None
test_cfg = dict()
