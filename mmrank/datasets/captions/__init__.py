"""Images with captions.

Importing this package registers the data sets without importing mmpretrain.
"""

from mmrank.optional_class import register_optional
from mmrank.registry import DATASETS

_MODULE = 'mmrank.datasets.captions.caption_dataset'

register_optional(
    DATASETS,
    'mmpretrain',
    {name: f'{_MODULE}.{name}' for name in ('COCOCaptions', 'CaptionTable', 'KarpathyCaptions')},
)
