"""Names that mmrank had, and what a user does instead: one sentence each.

A config, an import or a setting that names one of them gets its sentence.
"""

from mmrank.errors import UserError

#: Registered names: the root registry of mmengine that a config looks in, and what to do.
TYPES: dict[str, tuple[str, str]] = {}
#: Other names of mmrank's packages.
NAMES = {'LabelledPairLoss': 'labelled_pair_loss of mmrank.functional, a function'}
#: Settings, as ``Class.setting``, or by name alone where several classes had it.
SETTINGS = {
    'InBatchSoftmaxLoss.num_buckets': 'leave it out: the counts are exact, 8 bytes a column'
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
