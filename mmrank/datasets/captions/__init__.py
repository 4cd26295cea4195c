"""Images with captions.

Importing this package registers the data sets without importing mmpretrain.
"""

from mmrank.datasets.mmpretrain_datasets import register_mmpretrain_datasets

_MODULE = 'mmrank.datasets.captions.caption_dataset'

register_mmpretrain_datasets(
    dict.fromkeys(
        ('COCOCaptions', 'CaptionTable', 'KarpathyCaptions'), _MODULE
    )
)
