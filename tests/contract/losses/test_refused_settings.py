"""Settings that losses, metrics and samplers refuse when they are built, by their name."""

import inspect
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from labelled import Labels
from subjects import build, cases, loss_names, row_of

from mmrank import losses
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.errors import UserError, UserTypeError
from mmrank.registry import DATA_SAMPLERS, METRICS, MODELS

#: Loss, its settings, and what the error says.
VALUES = [
    ('APLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('AsymmetricLoss', dict(num_classes=3, clip=1), r'clip must be in \[0, 1\), got 1'),
    ('CLIPLoss', dict(tau=2.0), 'tau_min <= tau <= tau_max'),
    ('IABCELoss', dict(alpha=2), r'alpha must be in \[0, 1\], got 2'),
    ('ISogCLRLoss', dict(num_samples=2.0), 'num_samples must be'),
    ('InBatchLoss', dict(pointwise='hinge'), "pointwise='hinge'"),
    ('InBatchLoss', dict(mode='in_batch', omega=0.5), 'has no effect'),
    ('IndividualCLIPLoss', dict(num_samples=3, tau=1e-4), '0 < tau_min <= tau'),
    ('LDAMLoss', dict(num_classes=1, use_sigmoid=False), 'needs use_sigmoid'),
    (
        'LDAMLoss',
        dict(num_classes=3, class_counts=[0, 0, 0]),
        'not all 0.*Fix: .*the positives of each class',
    ),
    ('ListwiseAPLoss', dict(num_bins=1), 'num_bins must be at least 2'),
    ('ListwiseAPLoss', dict(score_range=0.5), r'score_range must be tuple.* got 0.5'),
    ('StableAPLoss', dict(score_range=(1, 2, 3)), r'score_range must be .* got \(1, 2, 3\)'),
    ('ALRPLoss', dict(balance_period=0), 'balance_period must be an int >= 1, got 0'),
    ('SOPRCLoss', dict(mode=1), 'mode must be str, got 1'),
    ('ClassBalancedCELoss', dict(num_classes=3, beta=1.0), 'beta must be in'),
    ('LDAMLoss', dict(num_classes=3, reweight_beta=1.0), 'reweight_beta must be in'),
    ('RecallAtKLoss', dict(ks=(1, 0)), r'ks must be .* got \(1, 0\). Fix'),
    ('RecallAtKLoss', dict(ks=()), 'ks must be'),
    ('RecallAtKLoss', dict(ks='all'), 'ks must be'),
    ('SOPRCLoss', dict(mode='per_class'), 'requires num_classes'),
    ('SOPRCLoss', dict(prior='counts', num_classes=3), 'prior per class requires mode'),
    ('SOPRCLoss', dict(prior='batch', max_prior=0.1), 'has no effect with'),
    ('LDAMLoss', dict(class_counts=3), r'class_counts must be \(C,\) numbers >= 0.* got 3'),
    ('LDAMLoss', dict(class_counts='5,3,1'), 'must be numbers. Fix: .C,. numbers'),
    ('LDAMLoss', dict(num_classes=3, class_counts={'a': 2}), "has 'a', which is not a class index"),
    ('APLoss', dict(class_weight=[1.0, -1.0]), r'class_weight\[1\]'),
    ('APLoss', dict(class_weight={'a': 'b'}), 'must be a number for each class'),
    ('APLoss', dict(class_weight=('auto', 2)), r'power of class_weight.* in \[0, 1\], got 2'),
    ('APLoss', dict(class_weight=('auto', '1')), 'must be a number for each class'),
    ('APLoss', dict(class_weight=np.ones((3, 1))), 'must be a number for each class'),
    ('LDAMLoss', dict(class_counts=[math.inf, 3, 2]), 'numbers >= 0, finite, .* got .inf'),
    ('SigLIPLoss', dict(tau=math.inf), 'tau must be > 0 and finite'),
    ('SogCLRLoss', dict(num_samples=3, tau=2.0, rho=0.5), 'tau <= largest_tau must hold.*tau=2.0'),
    ('StableAPLoss', dict(rho='max'), "rho must be 'auto', 'batch' or a number > 0"),
    ('StableAPLoss', dict(tau='auto', score_range=(-5.0, 5.0)), 'tau'),
    ('StableAPLoss', dict(score_range=(1.0, 0.0)), 'low < high'),
    ('StableAPLoss', dict(mean_scope='per_class'), "needs mode='per_class'"),
    ('StableAPLoss', dict(loss_weight=math.inf), 'loss_weight'),
]
#: Settings that a loss does not have, some of them of other libraries.
UNKNOWN = [
    ('APLoss', dict(activation='sigmoid'), 'activation'),  # its centre is that of the logits
    ('ALRPLoss', dict(activation='sigmoid'), 'activation'),
    ('RankSortLoss', dict(activation='sigmoid'), 'activation'),
    ('BalancedSoftmaxLoss', dict(num_classes=3, use_sigmoid=True), 'use_sigmoid'),
    ('SmoothAPLoss', dict(temperature=0.2), 'Fix: tau=0.2$'),
    ('InfoNCELoss', dict(temp=0.2), 'Fix: tau=0.2$'),
    ('StableAPLoss', dict(n_classes=4), 'Fix: num_classes=4$'),
    ('StableAPLoss', dict(quallity=0.5), 'Fix: quality=0.5$'),
    ('SOAPLoss', dict(num_samples=8, data_len=8), 'Fix: num_samples=8$'),
    ('TempNetLoss', dict(N=8, feature_dim=2), 'Fix: num_samples=8$'),
    ('AUCMLoss', dict(imratio=0.1), 'of each batch$'),
    ('VarifocalLoss', dict(mode='per_class'), "does not take mode='per_class'.*one of alpha"),
    ('LDAMLoss', dict(pos_weight=1), 'pos_weight. Fix: class_weight=.*weight=torch.where'),
    ('SmoothAPLoss', dict(ignore_index=1), r'Fix: .*weight=\(labels != ignored\)'),
    ('StableAPLoss', dict(from_logits=1), 'from_logits. Fix: .*scores are logits'),
]


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
#: A word or a number, of which the message says so.
FREE = {'rho', 'tau', 'mean_mode', 'prior'}


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
    found = []
    if 'float' in text and option != 'prior':
        found += [math.nan, -math.inf if option in ANY_NUMBER else -1.0, {}]
    if annotation is inspect.Parameter.empty or any(x in text for x in ('Mapping', 'Any', '~')):
        return found
    found += [] if 'str' in text else ['many']
    if 'str' in text and not any(x in text for x in ('int', 'float', '.')):
        found.append(3)
    if text in ('int', 'int | None') and option not in ANY_NUMBER:
        found += [-1, 2.5]
    if 'bool' not in text and ('int' in text or 'float' in text):
        found.append(True)
    return found


@pytest.mark.parametrize(
    ('registry', 'name', 'settings'), kinds(), ids=lambda x: x if isinstance(x, str) else ''
)
def test_a_wrong_option_is_named(registry, name, settings):
    """Each option of every registered loss, metric and sampler, set to what it does not take."""
    cls = registry.get(f'mmrank.{name}')
    options = inspect.signature(cls).parameters
    for option, parameter in options.items():
        if option == 'dataset':
            continue
        for value in wrong_values(option, parameter.annotation):
            with pytest.raises((ValueError, TypeError), match=rf'\b{option}\b'):
                cls(**{**settings, option: value})
        if registry is MODELS and isinstance(parameter.default, str) and option not in FREE:
            with pytest.raises(ValueError, match=rf"\b{option}='x' is unknown"):
                cls(**{**settings, option: 'x'})
        if len(option) > 4:
            with pytest.raises(TypeError, match=rf'does not take .*Fix: .*\b{option}\b'):
                cls(**{**settings, option[:-2] + option[-1]: 1})


@pytest.mark.parametrize(('name', 'settings', 'message'), VALUES)
def test_a_value_is_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        getattr(losses, name)(**settings)


@pytest.mark.parametrize(('name', 'settings', 'message'), UNKNOWN)
def test_a_setting_that_is_unknown_is_named(name, settings, message):
    with pytest.raises(UserTypeError, match=message):
        getattr(losses, name)(**settings)


@pytest.mark.parametrize('case', list({x.name: x for x in reversed(cases())}.values()), ids=str)
def test_a_number_that_is_set_later_counts_or_is_refused(case):
    """As in a loss that is built with it."""
    # The first is also where a parameter starts, the second makes another mode of this one.
    other = [('AUCMLoss', 'margin'), ('InBatchLoss', 'omega')]
    options = inspect.signature(getattr(losses, case.name)).parameters
    defaults = {name: x.default for name, x in options.items()}
    for name, old in {**defaults, **case.settings}.items():
        if not isinstance(old, float) or (case.name, name) in other:
            continue
        later = case.build()
        right = build(case.name, {**case.settings, name: 0.9 * old})
        if name not in vars(later):
            with pytest.raises(UserError, match=f'{name}=.* would have no effect'):
                setattr(later, name, 0.9 * old)
            continue
        setattr(later, name, 0.9 * old)
        batch = case.batch()
        assert torch.equal(batch.of(later), batch.of(right)), name


@pytest.mark.parametrize('case', [x for x in cases() if x.kind == 'views'], ids=str)
def test_views_of_two_precisions(case):
    (one, two), idx = case.batch().leaves, case.batch().fixed
    torch.manual_seed(0)
    expected = case.build()(one.float(), two.float(), *idx)
    torch.manual_seed(0)
    torch.testing.assert_close(
        case.build()(one.float(), two, *idx), expected, check_dtype=False, rtol=1e-4, atol=1e-5
    )
