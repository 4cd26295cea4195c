"""Registry nodes of scope ``mmrank``, children of mmengine's roots.

A config that says ``type='mmrank.X'`` makes mmengine import this module and
then the ``locations`` of the node, so no ``custom_imports`` is needed. All
locations of a node are imported together: a module listed here must import
neither mmdet nor mmpretrain at its top level.
"""

from mmengine.registry import DATA_SAMPLERS as MMENGINE_DATA_SAMPLERS
from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import FUNCTIONS as MMENGINE_FUNCTIONS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIMIZERS as MMENGINE_OPTIMIZERS
from mmengine.registry import TASK_UTILS as MMENGINE_TASK_UTILS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import Registry

MODELS = Registry(
    'model',
    parent=MMENGINE_MODELS,
    scope='mmrank',
    locations=['mmrank.models'],
)
HOOKS = Registry(
    'hook',
    parent=MMENGINE_HOOKS,
    scope='mmrank',
    locations=['mmrank.engine.hooks'],
)
OPTIMIZERS = Registry(
    'optimizer',
    parent=MMENGINE_OPTIMIZERS,
    scope='mmrank',
    locations=['mmrank.engine.optimizers'],
)
DATASETS = Registry(
    'dataset',
    parent=MMENGINE_DATASETS,
    scope='mmrank',
    locations=['mmrank.datasets'],
)
DATA_SAMPLERS = Registry(
    'data sampler',
    parent=MMENGINE_DATA_SAMPLERS,
    scope='mmrank',
    locations=['mmrank.datasets.samplers'],
)
FUNCTIONS = Registry(
    'function',
    parent=MMENGINE_FUNCTIONS,
    scope='mmrank',
    locations=['mmrank.datasets'],
)
METRICS = Registry(
    'metric',
    parent=MMENGINE_METRICS,
    scope='mmrank',
    locations=[
        'mmrank.evaluation.image_text_retrieval_metric',
        'mmrank.evaluation.average_precision_metric',
        'mmrank.evaluation.knn_metric',
        'mmrank.evaluation.linear_probe_metric',
        'mmrank.evaluation.retrieval_metric',
        'mmrank.evaluation.top_k_metric',
    ],
)
TASK_UTILS = Registry(
    'task util',
    parent=MMENGINE_TASK_UTILS,
    scope='mmrank',
    locations=['mmrank.models.task_modules'],
)
TRANSFORMS = Registry(
    'transform',
    parent=MMENGINE_TRANSFORMS,
    scope='mmrank',
    locations=['mmrank.datasets.transforms'],
)

__all__ = [
    'DATASETS',
    'DATA_SAMPLERS',
    'FUNCTIONS',
    'HOOKS',
    'METRICS',
    'MODELS',
    'OPTIMIZERS',
    'TASK_UTILS',
    'TRANSFORMS',
]
