"""Images with captions in shards, local or streamed, with stable indices.

Importing this package registers the data sets without importing mmpretrain.
"""

from mmrank.optional_class import register_optional
from mmrank.registry import DATASETS

_FOLDER = 'mmrank.datasets.shards'

register_optional(
    DATASETS,
    'mmpretrain',
    {
        'ShardedCaptions': f'{_FOLDER}.sharded_captions.ShardedCaptions',
        'StreamedCaptions': f'{_FOLDER}.sharded_captions.StreamedCaptions',
    },
)
