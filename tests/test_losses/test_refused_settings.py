"""Settings that a loss refuses when it is built, by their name."""

import math

import pytest

from mmrank import losses
from mmrank.errors import UserTypeError

#: Loss, its settings, and what the error says.
VALUES = [
    ('APLoss', dict(delta=0.0), 'delta must be > 0'),
    ('RankSortLoss', dict(delta=0.0), 'delta must be > 0'),
    ('RankSortLoss', dict(sort_weight=-1.0), 'sort_weight'),
    ('APLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('SmoothAPLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('StableAPLoss', dict(quality=1.5), r'quality must be in \[0, 1\], got 1.5. Fix'),
    ('AUCLoss', dict(surrogate='hinge'), "surrogate='hinge' is unknown"),
    ('AUCLoss', dict(tau=-1), 'tau must be'),
    ('AsymmetricLoss', dict(num_classes=3, gamma_neg=-1), 'gamma_neg must be >= 0'),
    ('AsymmetricLoss', dict(num_classes=3, clip=1), r'clip must be in \[0, 1\), got 1'),
    ('BimodalISogCLRLoss', dict(num_samples=6, gradient_clip=0.0), 'gradient_clip'),
    ('BimodalISogCLRLoss', dict(num_samples=6, scope='batch'), "scope='batch' is unknown"),
    ('BlackBoxAPLoss', dict(lam=0), 'lam must be'),
    ('BlackBoxAPLoss', dict(margin=-1), 'margin must be'),
    ('CLIPLoss', dict(tau=0), 'tau must be > 0'),
    ('CLIPLoss', dict(tau=2.0), 'tau_min <= tau <= tau_max'),
    ('CLIPLoss', dict(tau=0.3, tau_min=-1), 'tau_min must be > 0'),
    ('FlatCLRLoss', dict(tau=0), 'tau must be > 0'),
    ('HAPLoss', dict(alpha=-1.0), 'alpha must be >= 0'),
    ('HAPLoss', dict(alpha=math.nan), 'alpha must be >= 0'),
    ('IABCELoss', dict(alpha=2), r'alpha must be in \[0, 1\], got 2'),
    ('ISogCLRLoss', dict(num_samples=6, gradient_clip=0.0), 'gradient_clip'),
    ('ISogCLRLoss', dict(num_samples=6, rho=0), 'rho must be > 0'),
    ('ISogCLRLoss', dict(num_samples=2.0), 'num_samples must be'),
    ('InBatchLoss', dict(mode='softmax'), "mode='softmax'"),
    ('InBatchLoss', dict(pointwise='hinge'), "pointwise='hinge'"),
    ('InBatchLoss', dict(mode='in_batch', omega=0.5), 'has no effect'),
    ('InBatchLoss', dict(mode='unbiased_omega', omega=0), 'omega must be > 0'),
    ('InBatchLoss', dict(scope='world'), "scope='world'"),
    ('InBatchSoftmaxLoss', dict(tau=0), 'tau must be > 0'),
    ('InBatchSoftmaxLoss', dict(frequency='none', refined=True), "Fix: frequency='counts'"),
    ('InBatchSoftmaxLoss', dict(frequency='exact'), "frequency='exact' is unknown"),
    ('IndividualCLIPLoss', dict(num_samples=3, tau=1e-4), '0 < tau_min <= tau'),
    ('InfoNCELoss', dict(tau=0), 'tau must be > 0'),
    ('InfoNCELoss', dict(hardness_strength=-1), 'hardness_strength must be >= 0'),
    ('LDAMLoss', dict(num_classes=1, use_sigmoid=False), 'needs use_sigmoid'),
    (
        'LDAMLoss',
        dict(num_classes=3, class_counts=[0, 0, 0]),
        'not all 0.*Fix: the number of positives',
    ),
    ('ListwiseAPLoss', dict(num_bins=1), 'num_bins must be at least 2'),
    ('ListwiseAPLoss', dict(score_range=(1, 0)), 'score_range must be'),
    ('LogitAdjustedCELoss', dict(num_classes=3, tau=-1), 'tau must be >= 0'),
    ('ClassBalancedCELoss', dict(num_classes=3, beta=1.0), 'beta must be in'),
    ('LDAMLoss', dict(num_classes=3, max_margin=-1.0), 'max_margin must be'),
    ('LDAMLoss', dict(num_classes=3, reweight_beta=1.0), 'reweight_beta must be in'),
    ('MALLoss', dict(gamma=-1), 'gamma must be >= 0'),
    ('MAUCLoss', dict(tau=0.0), 'tau must be'),
    ('NDCGLoss', dict(tau=-1), 'tau must be'),
    ('PartialAUCLoss', dict(max_fpr=0.0), r'max_fpr must be in \(0, 1\]'),
    ('PartialAUCLoss', dict(tau=0.0), 'tau must be > 0'),
    ('RecallAtKLoss', dict(tau=-1), 'tau must be'),
    ('RecallAtKLoss', dict(ks=(1, 0)), r'ks must be .* got \(1, 0\). Fix'),
    ('RecallAtKLoss', dict(ks=()), 'ks must be'),
    ('RecallAtKLoss', dict(ks='all'), 'ks must be'),
    ('SOAPLoss', dict(num_samples=40, gamma=0.0), 'gamma must be in'),
    ('SOAPLoss', dict(num_samples=0), 'num_samples must be'),
    ('SOPRCLoss', dict(mode='per_class'), 'requires num_classes'),
    ('SOPRCLoss', dict(prior=0), r'prior must be in \(0, 1\)'),
    ('SOPRCLoss', dict(prior='data'), "prior='data' is unknown"),
    ('SOPRCLoss', dict(prior='counts'), "prior='counts' requires num_classes"),
    ('SOPRCLoss', dict(prior='counts', num_classes=3), 'prior per class requires mode'),
    ('SOPRCLoss', dict(prior='batch', max_prior=0.1), 'has no effect with'),
    ('SOPRCLoss', dict(max_prior=0.1), 'set prior to that number'),
    ('SOPRCLoss', dict(tau1=0), 'tau must be'),
    ('SOPRCLoss', dict(tau2=-1), 'tau must be'),
    ('SOPRCLoss', dict(lam1=-0.1), 'lam1 must be >= 0'),
    ('SOPRCLoss', dict(lam2=math.nan), 'lam2 must be >= 0'),
    ('SOPRCLoss', dict(momentum=2.0), 'momentum must be'),
    ('SOPRCLoss', dict(vector_length=0), 'length must be'),
    ('SOPRCLoss', dict(score_range=(1.0, 0.0)), 'low < high'),
    ('SigLIPLoss', dict(tau=0), 'tau must be > 0'),
    ('SigLIPLoss', dict(tau=math.inf), 'tau must be > 0 and finite'),
    ('SigLIPLoss', dict(scope='rank'), "scope='rank' is unknown"),
    ('SmoothAPLoss', dict(tau=0), 'tau must be'),
    ('SogCLRLoss', dict(num_samples=3, tau=-1), 'tau must be > 0'),
    ('SogCLRLoss', dict(num_samples=3, tau=2.0, rho=0.5), 'tau <= largest_tau must hold.*tau=2.0'),
    ('SogCLRLoss', dict(num_samples=3, rho=-1.0), 'rho must be'),
    ('StableAPLoss', dict(rho=0), "rho must be 'auto', 'batch' or a number > 0, got 0"),
    ('StableAPLoss', dict(rho='max'), "rho must be 'auto', 'batch' or a number > 0"),
    ('StableAPLoss', dict(rho=math.inf), 'rho'),
    ('StableAPLoss', dict(weights='mean'), "weights='mean' is unknown"),
    ('StableAPLoss', dict(tau=-1.0), 'tau must be'),
    ('StableAPLoss', dict(tau='wide'), 'tau'),
    ('StableAPLoss', dict(tau='auto', score_range=(-5.0, 5.0)), 'tau'),
    ('StableAPLoss', dict(score_range=(1.0, 0.0)), 'low < high'),
    ('StableAPLoss', dict(mean_scope='per_class'), "needs mode='per_class'"),
    ('StableAPLoss', dict(mode='per_class'), 'requires num_classes'),
    ('StableAPLoss', dict(score_penalty=-1.0), 'score_penalty must be'),
    ('StableAPLoss', dict(score_penalty=math.nan), 'score_penalty'),
    ('StableAPLoss', dict(loss_weight=-1), 'loss_weight'),
    ('StableAPLoss', dict(loss_weight=math.nan), 'loss_weight'),
    ('StableAPLoss', dict(loss_weight=math.inf), 'loss_weight'),
    ('StableAPLoss', dict(num_classes=0), 'num_classes'),
    ('StableAPLoss', dict(num_classes=2.5), 'num_classes'),
    ('StableAPLoss', dict(num_classes=True), 'num_classes'),
    ('TaUSimCLRLoss', dict(tau=0.0), 'tau must be > 0'),
]
#: Settings that a loss does not have, some of them of other libraries.
UNKNOWN = [
    ('APLoss', dict(activation='sigmoid'), 'activation'),  # its centre is that of the logits
    ('ALRPLoss', dict(activation='sigmoid'), 'activation'),
    ('RankSortLoss', dict(activation='sigmoid'), 'activation'),
    ('BalancedSoftmaxLoss', dict(num_classes=3, use_sigmoid=True), 'use_sigmoid'),
    ('VarifocalLoss', dict(mode='per_class'), "does not take mode='per_class'.*takes alpha"),
]
for name in ('StableAPLoss', 'SmoothAPLoss', 'LDAMLoss'):
    UNKNOWN += [
        (name, dict(pos_weight=1), 'does not take pos_weight. Fix: .*loss_weight scales'),
        (
            name,
            dict(ignore_index=1),
            r'does not take ignore_index. Fix: .*pass weight=\(labels != ignored\)',
        ),
        (name, dict(from_logits=1), 'does not take from_logits. Fix: .*scores are logits'),
    ]


@pytest.mark.parametrize(('name', 'settings', 'message'), VALUES)
def test_a_value_is_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        getattr(losses, name)(**settings)


@pytest.mark.parametrize(('name', 'settings', 'message'), UNKNOWN)
def test_a_setting_that_is_unknown_is_named(name, settings, message):
    with pytest.raises(UserTypeError, match=message):
        getattr(losses, name)(**settings)
