"""Settings: checks of one line each, and the bases of the classes that check their own.

A message names field and value. A class passes ``**kwargs`` on to its bases, whose settings it
takes but for its ``fixed_settings``.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from torch import Tensor, nn

from mmrank.errors import UserError, UserTypeError


def one_of(name: str, value: object, allowed: Collection) -> None:
    """Raise ValueError for an unknown choice of a setting."""
    if value not in allowed:
        raise ValueError(f'{name}={value!r} is unknown; use one of {tuple(allowed)}')


def _check(settings: Mapping, is_right: Callable, wanted: str) -> None:
    for name, value in settings.items():
        if not is_right(value):
            raise ValueError(f'{name} must be {wanted}, got {value!r}')


def check_positive(**settings: float) -> None:
    """Raise ValueError for a setting that is not > 0 and finite."""
    _check(settings, lambda x: 0 < x < float('inf'), '> 0 and finite')


def check_not_negative(**settings: float | Real) -> None:
    """Raise ValueError for a setting that is not >= 0 and finite."""
    _check(settings, lambda x: 0 <= x < float('inf'), '>= 0 and finite')


def check_at_least(least: int, **settings: int) -> None:
    """Raise ValueError for a setting below ``least``."""
    _check(settings, lambda x: x >= least, f'at least {least}')


def check_within(interval: str, **settings: float | Real) -> None:
    """Raise ValueError for a setting outside of an interval, such as ``'(0, 1]'``."""
    low, high = map(float, interval[1:-1].split(','))

    def is_right(x: float | Real) -> bool:
        is_open = (x == low and interval[0] == '(') or (x == high and interval[-1] == ')')
        return low <= x <= high and not is_open

    _check(settings, is_right, f'in {interval}')


def check_ascending(**settings: float) -> None:
    """Raise ValueError unless settings > 0 ascend in the order given; some may be equal."""
    check_positive(**settings)
    values = list(settings.values())
    if values != sorted(values):
        given = ', '.join(f'{name}={value!r}' for name, value in settings.items())
        raise ValueError(f'0 < {" <= ".join(settings)} must hold, got {given}')


def check_score_range(score_range: tuple[float, float]) -> None:
    """Raise ValueError for a range of scores that is not finite, or has no width."""
    low, high = score_range
    if not float('-inf') < low < high < float('inf'):
        raise ValueError(f'score_range must be finite with low < high, got {score_range!r}')


def check_count(name: str, value: object, least: int = 1, fix: str = '') -> None:
    """Raise ValueError if a setting is not an integer >= ``least``, of Python or of NumPy."""
    if isinstance(value, bool) or not (isinstance(value, Integral) and value >= least):
        raise UserError(f'{name} must be an int >= {least}, got {value!r}{fix}')


_BY_CLASS = 'leave it out; losses of scores have class_weight=, of SumLoss each part'
#: Settings of PyTorch's losses and others, and what a loss here has in their place.
ELSEWHERE = {
    'pos_weight': 'class_weight=, a weight for each class; of one list loss(scores, labels, '
    'weight=torch.where(labels > 0, pos_weight, 1.0))',
    'class_weight': _BY_CLASS,
    'weight': _BY_CLASS,
    'bg_cls_weight': 'leave it out, by _delete_=True in a config that inherits it: no background '
    'is a class here',
    'sample_weight': 'leave it out; loss(scores, labels, weight=weight) takes them in each call',
    'ignore_index': 'leave it out; loss(scores, labels, weight=(labels != ignored))',
    'labels': 'leave it out; loss(scores, labels) takes them in each call',
    'from_logits': 'leave it out: scores are logits, or any other scores',
    'size_average': 'leave it out: the loss is a mean',
    'label_smoothing': 'leave it out: labels are positive or not',
    'imratio': 'leave it out: the share of positives is of each batch',
    'device': 'leave it out; loss.to(device)',
    'task': 'leave it out: scores of one column are binary, of several each against the rest',
}
#: Other names of settings that some losses have.
_SYNONYMS = {
    'temperature': 'tau',
    'temp': 'tau',
    'n_classes': 'num_classes',
    'cls_num_list': 'class_counts',
    'data_len': 'num_samples',
    'N': 'num_samples',
    'feature_dim': 'width',
    'top_k': 'k',
    'topk': 'k',
}


class CheckedSettings:
    """Base of losses, metrics and samplers: ``help()`` shows the settings; others are refused."""

    #: Settings that are taken, but that ``help()`` does not show.
    hidden_settings: Sequence[str] = ()
    #: Settings of its bases that a class sets itself.
    fixed_settings: Sequence[str] = ()

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = _signature_of(cls)
        cls._setting_names = frozenset(cls.__signature__.parameters)

    def __new__(cls, *args, **settings):
        # Not in __init__: a base gets what its subclass passes, which no config has written.
        names = settings_of(cls)
        known = {*names, *cls.hidden_settings}
        refuse_unknown(cls, {k: v for k, v in settings.items() if k not in known})
        by_place = dict(zip(names, args))
        given = {**by_place, **settings}
        _refuse_tensors(cls, by_place, given)
        _check_kinds(cls, given)
        built = super().__new__(cls)
        # A text, which keeps no tensor alive; nn.Module takes no attributes before its __init__.
        built.__dict__['_settings_given'] = _as_text(given)
        return built


def refuse_unknown(cls: type, unknown: dict) -> None:
    """Raise UserTypeError for the keyword arguments that no ``__init__`` took."""
    known = settings_of(cls)
    fixes = {}
    for name, value in unknown.items():
        near = [_SYNONYMS.get(name), *get_close_matches(name, known, n=1, cutoff=0.8)]
        near = next((f'{x}={value!r:.80}' for x in near if x in known), None)
        fixes[name] = ELSEWHERE.get(name) or near
    if unknown and all(fixes.values()):
        name = next(iter(fixes))
        raise UserTypeError(f'{cls.__name__} does not take {name}. Fix: {fixes[name]}')
    if unknown:
        listed = ', '.join(f'{k}={v!r:.80}' for k, v in unknown.items())
        raise UserTypeError(
            f'{cls.__name__} does not take {listed}. Fix: leave it out, or one of '
            f'{", ".join(known)}; a config that inherits it from another one has '
            f"dict(_delete_=True, type='mmrank.{cls.__name__}', ...)"
        )


def _refuse_tensors(cls: type, by_place: dict, given: dict) -> None:
    """Refuse what belongs into the call, and numbers that would not be learnt."""
    name = cls.__name__
    of_call = [x for k, x in by_place.items() if k != 'class_counts']
    if any(isinstance(x, Tensor) and x.dim() for x in of_call):
        what = f'{name}(...) takes settings, and got a tensor'
        raise UserTypeError(what, f'build it once, then call it: loss = {name}(...); loss(...)')
    for key, value in given.items():
        if isinstance(value, Tensor) and value.requires_grad:
            raise UserTypeError(
                f'{key}={value.detach()!r:.60} of {name} requires a gradient, and would not be '
                f'learnt. Fix: {key}=float({key}); CLIPLoss, SigLIPLoss and SogCLRLoss(rho=...) '
                'learn a temperature of their own'
            )


#: What the annotations of settings take; others are not looked at.
_KINDS = {float: (Real, Tensor), int: Integral, bool: bool, str: str, NoneType: NoneType}


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of the kind that an annotation says."""
    if get_origin(kind) in (UnionType, Union):
        return any(_fits(value, x) for x in get_args(kind))
    if get_origin(kind) is Sequence:
        is_list = hasattr(value, '__len__') and not isinstance(value, (str, Mapping))
        return is_list and all(_fits(x, *get_args(kind)) for x in value)
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        is_list = isinstance(value, (list, tuple)) and len(value) == len(kinds)
        return is_list and all(map(_fits, value, kinds))
    is_switch = isinstance(value, bool) and kind in (int, float)
    return isinstance(value, _KINDS.get(kind, object)) and not is_switch


def _check_kinds(cls: type, given: dict) -> None:
    """Refuse settings of another kind than their annotation, and a wrong ``num_classes``."""
    for name, setting in _signature_of(cls).parameters.items():
        if name in given and not _fits(given[name], setting.annotation):
            kind = inspect.formatannotation(setting.annotation).replace('collections.abc.', '')
            fix = f'a value of that kind; help(mmrank.{cls.__name__}) says what it is'
            if _fits([given[name]], setting.annotation):
                fix = f'{name}=[{given[name]!r}]'
            raise UserTypeError(f'{name} must be {kind}, got {given[name]!r:.80}. Fix: {fix}')
    if given.get('num_classes') is not None:
        check_count('num_classes', given['num_classes'])


#: Does not write out a list of a million class counts.
_SHORT = Repr()
_SHORT.maxstring = 80
_SHORT.maxother = 80


def _as_text(settings: Mapping[str, object]) -> str:
    """Settings without the modules among them, long ones cut."""
    shown = []
    for name, value in settings.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        if not any(isinstance(x, nn.Module) for x in values):
            shown.append(f'{name}={_SHORT.repr(value)}')
    return ', '.join(shown)


def settings_of(cls: type) -> list[str]:
    """Keyword arguments of a class that may pass ``**kwargs`` to its bases; its bases' last."""
    return list(_signature_of(cls).parameters)


@functools.cache
def _signature_of(cls: type) -> inspect.Signature:
    """Arguments of a class, those that ``**kwargs`` passes to its bases spelt out."""
    hidden = getattr(cls, 'hidden_settings', ())
    parameters = [p for p in _parameters(cls.__mro__) if p.name not in hidden]
    return inspect.Signature(sorted(parameters, key=lambda p: p.kind))


def _parameters(classes: Sequence[type]) -> list[inspect.Parameter]:
    """Of the first class with an ``__init__``, and what it passes on to the next ones."""
    at = next((i for i, cls in enumerate(classes) if '__init__' in cls.__dict__), None)
    if at is None:
        return []
    _, *parameters = inspect.signature(classes[at].__dict__['__init__']).parameters.values()
    written_out = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if all(p.kind is not p.VAR_KEYWORD for p in parameters):
        return written_out
    taken = {p.name for p in written_out} | {*classes[at].__dict__.get('fixed_settings', ())}
    of_bases = [p for p in _parameters(classes[at + 1 :]) if p.name not in taken]
    return [*written_out, *(p.replace(kind=p.KEYWORD_ONLY) for p in of_bases)]


class _NotesWhenBuilt(type):
    """Class of losses, which tells a setting of ``__init__`` from one that is set later."""

    def __call__(cls, *args, **settings):
        loss = super().__call__(*args, **settings)
        loss.__dict__['_is_built'] = True
        return loss


class NamedSettings(CheckedSettings, nn.Module, metaclass=_NotesWhenBuilt):
    """Base of losses: ``repr()`` shows the settings; one that is set later has an effect."""

    _is_built = False

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_built and name in self._setting_names:
            cls = type(self)
            _refuse_tensors(cls, {}, {name: value})
            _check_kinds(cls, {name: value})
            # A loss keeps the numbers and switches that it reads in each call; it was made of
            # everything else.
            takes_numbers = _fits(0.5, cls.__signature__.parameters[name].annotation)
            is_number = isinstance(value, Real) and (takes_numbers or isinstance(value, bool))
            if not ((is_number and name in vars(self)) or isinstance(value, nn.Module)):
                raise UserError(
                    f'{name}={value!r:.80} of {cls.__name__} would have no effect: the loss is '
                    f'built with it. Fix: another loss, {cls.__name__}({name}={value!r:.80}, ...)'
                )
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        """The settings that were given; losses inside are shown by themselves."""
        return self.__dict__.get('_settings_given', '')


class ScopedLoss(NamedSettings):
    """Base of losses of the scores or embeddings of a batch.

    Args:
        scope: ``global``: in distributed training the batches of all ranks are one, exactly as in a
            single process. ``local``: each rank has its own.
        loss_weight: Factor of the whole loss, >= 0.
    """

    def __init__(self, scope: str = 'global', loss_weight: float = 1.0) -> None:
        super().__init__()
        one_of('scope', scope, ('global', 'local'))
        check_not_negative(loss_weight=loss_weight)
        self.scope = scope
        self.loss_weight = loss_weight
