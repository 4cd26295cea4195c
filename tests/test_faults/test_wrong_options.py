"""Each option of every registered loss, metric and sampler, set to what it does not take."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
from labelled import Labels
from subjects import loss_names, row_of

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.registry import DATA_SAMPLERS, METRICS, MODELS

CLASSES = Labels([i % 7 for i in range(60)])
PAIRS = SimpleNamespace(
    sampling='in_batch',
    interactions=Interactions(
        np.arange(40) % 8, np.arange(40) // 8, list('abcdefgh'), list('ABCDE')
    ),
)
SAMPLERS = {
    'ClassPairSampler': dict(dataset=CLASSES, batch_size=12),
    'InBatchPairSampler': dict(dataset=PAIRS, batch_size=12),
    'PKSampler': dict(dataset=CLASSES, batch_size=12),
    'PositiveRateSampler': dict(
        dataset=Labels([int(i % 6 == 0) for i in range(60)], 'ab'), batch_size=12, positive_rate=0.5
    ),
}
#: Some number has a meaning below 0.
ANY_NUMBER = {'seed', 'mean_mode'}


def kinds():
    METRICS.import_from_location()
    DATA_SAMPLERS.import_from_location()
    # CocoMetric has the options of mmdet's.
    metrics = {*METRICS.module_dict} - {'CocoMetric'}
    entries = DATA_SAMPLERS.module_dict.items()  # research registers its own, too
    samplers = {name for name, x in entries if x.__module__.startswith('mmrank.')}
    return [
        *((MODELS, name, row_of(name).settings[0]) for name in loss_names()),
        *((METRICS, name, {}) for name in sorted(metrics)),
        *((DATA_SAMPLERS, name, SAMPLERS[name]) for name in sorted(samplers)),
    ]


def wrong_values(option, annotation):
    """What an option of this annotation does not take."""
    text = inspect.formatannotation(annotation)
    if annotation is inspect.Parameter.empty or any(x in text for x in ('Mapping', 'Any', '~')):
        return []
    found = [] if 'str' in text else ['many']
    if 'str' in text and not any(x in text for x in ('int', 'float', '.')):
        found.append(3)
    if text in ('int', 'int | None', 'float') and option not in ANY_NUMBER:
        found.append(-1)
    if 'bool' not in text and ('int' in text or 'float' in text):
        found.append(True)
    return found


@pytest.mark.parametrize(
    ('registry', 'name', 'settings'), kinds(), ids=lambda x: x if isinstance(x, str) else ''
)
def test_a_wrong_option_is_named(registry, name, settings):
    cls = registry.get(f'mmrank.{name}')
    options = inspect.signature(cls).parameters
    for option, parameter in options.items():
        if option == 'dataset':
            continue
        for value in wrong_values(option, parameter.annotation):
            with pytest.raises((ValueError, TypeError), match=rf'\b{option}\b'):
                cls(**{**settings, option: value})
        if len(option) > 4:
            with pytest.raises(TypeError, match=rf'does not take .*Fix: .*\b{option}\b'):
                cls(**{**settings, option[:-2] + option[-1]: 1})
