"""Settings that a loss refuses when it is built, by their name."""

import inspect
import math

import numpy as np
import pytest
import torch
from subjects import build, cases, loss_names, row_of

from mmrank import losses
from mmrank.errors import UserError, UserTypeError

#: Loss, its settings, and what the error says.
VALUES = [
    ('APLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('SmoothAPLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('StableAPLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('AUCLoss', dict(surrogate='hinge'), "surrogate='hinge' is unknown"),
    ('AsymmetricLoss', dict(num_classes=3, clip=1), r'clip must be in \[0, 1\), got 1'),
    ('BimodalISogCLRLoss', dict(num_samples=6, scope='batch'), "scope='batch' is unknown"),
    ('CLIPLoss', dict(tau=2.0), 'tau_min <= tau <= tau_max'),
    ('IABCELoss', dict(alpha=2), r'alpha must be in \[0, 1\], got 2'),
    ('ISogCLRLoss', dict(num_samples=2.0), 'num_samples must be'),
    ('InBatchLoss', dict(mode='softmax'), "mode='softmax'"),
    ('InBatchLoss', dict(pointwise='hinge'), "pointwise='hinge'"),
    ('InBatchLoss', dict(mode='in_batch', omega=0.5), 'has no effect'),
    ('InBatchLoss', dict(scope='world'), "scope='world'"),
    ('InBatchSoftmaxLoss', dict(frequency='none', refined=True), "Fix: frequency='counts'"),
    ('InBatchSoftmaxLoss', dict(frequency='exact'), "frequency='exact' is unknown"),
    ('IndividualCLIPLoss', dict(num_samples=3, tau=1e-4), '0 < tau_min <= tau'),
    ('LDAMLoss', dict(num_classes=1, use_sigmoid=False), 'needs use_sigmoid'),
    (
        'LDAMLoss',
        dict(num_classes=3, class_counts=[0, 0, 0]),
        'not all 0.*Fix: .*the positives of each class',
    ),
    ('ListwiseAPLoss', dict(num_bins=1), 'num_bins must be at least 2'),
    ('ListwiseAPLoss', dict(score_range=(1, 0)), 'score_range must be'),
    ('ListwiseAPLoss', dict(score_range=0.5), r'score_range must be tuple.* got 0.5'),
    ('StableAPLoss', dict(score_range=(1, 2, 3)), r'score_range must be .* got \(1, 2, 3\)'),
    ('AsymmetricLoss', dict(num_classes=0), 'num_classes must be an int >= 1, got 0'),
    ('ALRPLoss', dict(balance_period=0), 'balance_period must be an int >= 1, got 0'),
    ('SOPRCLoss', dict(vector_length=0), 'vector_length must be an int >= 1, got 0'),
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
    ('SigLIPLoss', dict(scope='rank'), "scope='rank' is unknown"),
    ('SogCLRLoss', dict(num_samples=3, tau=2.0, rho=0.5), 'tau <= largest_tau must hold.*tau=2.0'),
    ('StableAPLoss', dict(rho='max'), "rho must be 'auto', 'batch' or a number > 0"),
    ('StableAPLoss', dict(rho=math.inf), 'rho'),
    ('StableAPLoss', dict(weights='mean'), "weights='mean' is unknown"),
    ('StableAPLoss', dict(tau='wide'), 'tau'),
    ('StableAPLoss', dict(tau='auto', score_range=(-5.0, 5.0)), 'tau'),
    ('StableAPLoss', dict(score_range=(1.0, 0.0)), 'low < high'),
    ('StableAPLoss', dict(mean_scope='per_class'), "needs mode='per_class'"),
    ('StableAPLoss', dict(mode='per_class'), 'requires num_classes'),
    ('StableAPLoss', dict(loss_weight=math.inf), 'loss_weight'),
    ('StableAPLoss', dict(num_classes=2.5), 'num_classes'),
    ('StableAPLoss', dict(num_classes=True), 'num_classes'),
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


@pytest.mark.parametrize('name', loss_names())
def test_a_number_out_of_range_is_named(name):
    """NaN and -1, of every option that is a number, and what is none."""
    settings = row_of(name).settings[0]
    cls = getattr(losses, name)
    for option, parameter in inspect.signature(cls).parameters.items():
        if 'float' in str(parameter.annotation):
            below = -math.inf if option == 'mean_mode' else -1.0
            values = [math.nan, below] if option == 'prior' else [math.nan, below, {}]
            for value in values:
                with pytest.raises(ValueError, match=option):
                    cls(**{**settings, option: value})


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
