"""Importing this makes ``lvis`` work with today's numpy.

For ``custom_imports`` of configs whose evaluator is mmdet's ``LVISMetric``.
Without the package ``lvis`` nothing happens here: training does not need it
before mmdet asks for it, with a message of its own.
"""

from contextlib import suppress

from mmrank.studies.coco.lvis_evaluation import LvisError, require_lvis

with suppress(LvisError):
    require_lvis()
