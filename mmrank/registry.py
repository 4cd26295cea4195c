"""Registry nodes of scope ``mmrank``, children of mmengine's roots.

A config with ``type='mmrank.X'`` makes mmengine import this module and
then the ``locations`` of the node, so no ``custom_imports`` is needed. All locations of a node are
imported together: a module listed here must import neither mmdet nor mmpretrain at its top level.

Without mmengine the nodes register nothing, so that ``mmrank.losses`` works with torch alone.
"""

import typing

import mmrank.mmcv_ops  # noqa: F401  mmcv.ops works without a compiler
from mmrank.errors import UserImportError

if typing.TYPE_CHECKING:
    from mmengine.registry import Registry

try:
    from mmengine import registry as _host
except ModuleNotFoundError as error:
    if (error.name or '').partition('.')[0] != 'mmengine':
        raise
    _host = None


class _NoRegistry:
    """Replaces a registry node where mmengine is absent."""

    def register_module(self, *args, module: type | None = None, **kwargs):
        """Return the class, or a decorator that returns it, unchanged."""
        return (lambda cls: cls) if module is None else module

    def build(self, cfg, *args, **kwargs):
        """Raise ImportError: only mmengine builds from a config."""
        what = f'building {cfg!r} from a config requires mmengine, which is not installed'
        raise UserImportError(what, '`mim install mmengine`, or call the class directly.')


def _node(name: str, root: str, *locations: str) -> 'Registry':
    if _host is None:
        return typing.cast('Registry', _NoRegistry())
    return _host.Registry(
        name, parent=getattr(_host, root), scope='mmrank', locations=list(locations)
    )


MODELS = _node('model', 'MODELS', 'mmrank.losses.registered', 'mmrank.models')
HOOKS = _node('hook', 'HOOKS', 'mmrank.engine.hooks')
OPTIMIZERS = _node('optimizer', 'OPTIMIZERS', 'mmrank.engine.optimizers')
DATASETS = _node('dataset', 'DATASETS', 'mmrank.datasets.registered')
DATA_SAMPLERS = _node('data sampler', 'DATA_SAMPLERS', 'mmrank.datasets.samplers')
FUNCTIONS = _node('function', 'FUNCTIONS', 'mmrank.datasets.registered')
METRICS = _node('metric', 'METRICS', 'mmrank.evaluation.registered')
TASK_UTILS = _node('task util', 'TASK_UTILS', 'mmrank.models')
TRANSFORMS = _node('transform', 'TRANSFORMS', 'mmrank.datasets.transforms')

__all__ = sorted(name for name in globals() if name.isupper())
