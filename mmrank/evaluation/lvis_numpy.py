"""Importing this makes ``lvis`` work with today's numpy.

The package ``lvis`` is optional. Its release on PyPI (0.5.3) uses ``np.float``, which numpy has not
had since 1.24; :func:`require_lvis` gives it back to that one module, and so to mmdet's
``LVISMetric``. A config does this by ``custom_imports =
dict(imports=['mmrank.evaluation.lvis_numpy'])``. Without the package nothing happens here: training
does not need it until mmdet requires it, with its own message.
"""

from contextlib import suppress
from types import ModuleType, SimpleNamespace

import numpy as np

from mmrank.errors import UserError


def require_lvis() -> ModuleType:
    """Import ``lvis``, made to work with today's numpy; a UserError if it is not installed."""
    try:
        import lvis
        import lvis.eval
    except ImportError as error:
        what = f'LVIS annotations require the package lvis, which cannot be imported ({error})'
        raise UserError(what, 'pip install lvis') from error
    if lvis.eval.np is np and not hasattr(np, 'float'):
        lvis.eval.np = SimpleNamespace(**vars(np), float=float)
    return lvis


with suppress(UserError):
    require_lvis()
