"""Names that mmrank had, and what a user does instead: one sentence each.

A config, an import or a setting that names one of them gets its sentence.
"""

from mmrank.errors import UserError

#: Registered names: the root registry of mmengine that a config looks in, and what to do.
TYPES: dict[str, tuple[str, str]] = {}
#: Other names of mmrank's packages.
NAMES = {
    'LabelledPairLoss': 'labelled_pair_loss of mmrank.functional, a function',
    'localisation_aware_calibration_error': 'expected_calibration_error, by the precision',
}
#: Settings, as ``Class.setting``, or by name alone where several classes had it.
SETTINGS = {
    'ListwiseHead.pointwise_loss': 'leave it out: heads that choose positives by it stay stock',
    'BarlowTwinsLoss.off_diagonal': 'loss.off_diagonal = value',
    'CyCLIPLoss.cross_weight': 'loss.cross_weight = value',
    'CyCLIPLoss.in_weight': 'loss.in_weight = value',
    'IndividualCLIPLoss.tau_min': 'leave it out: 0.001',
    'InfoNCELoss.normalize': 'leave it out: similarities are cosines',
    'InfoNCELoss.positive_in_denominator': 'mmrank.FlatCLRLoss leaves it out',
    'SigLIPLoss.bias': 'loss.logit_bias.data.fill_(bias)',
    'SimCoLoss.tau_inter': 'loss.tau_inter = value',
    'SpectralContrastiveLoss.mu': 'loss.mu = value',
    'VICRegLoss.covariance': 'loss.covariance = value',
    'VICRegLoss.invariance': 'loss.invariance = value',
    'VICRegLoss.variance': 'loss.variance = value',
    'InBatchSoftmaxLoss.num_buckets': 'leave it out: the counts are exact, 8 bytes a column',
}


def retired_name(name: str) -> str:
    """What to do instead of a public name; empty if mmrank never had it."""
    return TYPES[name][1] if name in TYPES else NAMES.get(name, '')


def retired_setting(owner: str, name: str) -> str:
    """What to do instead of a setting of a class; empty if the class never had it."""
    return SETTINGS.get(f'{owner}.{name}') or SETTINGS.get(name, '')


def register_retired(root: str, registry) -> None:
    """Register the retired names of a registry as functions that raise a UserError when built."""
    for name, (owner, fix) in TYPES.items():
        if owner != root:
            continue

        def build(*args, _message: tuple = (f'mmrank.{name} is gone', fix), **kwargs) -> object:
            raise UserError(*_message)

        registry.register_module(name=name, module=build)
