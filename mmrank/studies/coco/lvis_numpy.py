"""Importing this makes ``lvis`` work with today's numpy.

For ``custom_imports`` of configs whose evaluator is mmdet's ``LVISMetric``. Without the package
``lvis`` nothing happens here: training does not need it until mmdet requires it, with its own
message.
"""

from contextlib import suppress

from mmrank.errors import UserError
from mmrank.studies.coco.lvis_evaluation import require_lvis

with suppress(UserError):
    require_lvis()
