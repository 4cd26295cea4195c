"""What is wrong with a part of a config, where a runner builds it and where it is first used."""

import inspect
import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from mmengine import registry as roots
from mmengine.logging import MMLogger
from mmengine.registry import Registry

from mmrank.errors import UserError, machine_fault

#: What mmengine says of no data, where it builds a data set or a scheduler.
_NO_DATA = ('need at least one array to concatenate', '`epoch_length` must be a positive integer')
_NUMBER = r'-?[\d.e-]+'

if TYPE_CHECKING:
    from mmengine.runner import Runner as _Host
else:
    _Host = object


class NamedParts(_Host):
    """Mixin before a runner of mmengine: an error that a config makes names the part of it."""

    #: The last call of the hooks, and the batch that it was of.
    _last_call = ('', 0)

    def build_model(self, model):
        with self._building('model', model):
            return super().build_model(model)

    def build_dataloader(self, dataloader, *args, **kwargs):
        with self._building('dataloader', dataloader):
            return super().build_dataloader(dataloader, *args, **kwargs)

    def build_evaluator(self, evaluator):
        with self._building('evaluator', evaluator):
            return super().build_evaluator(evaluator)

    def build_optim_wrapper(self, optim_wrapper):
        with self._building('optim_wrapper', optim_wrapper):
            return super().build_optim_wrapper(optim_wrapper)

    def build_train_loop(self, loop):
        named = loop
        if isinstance(loop, dict):
            kind = 'EpochBasedTrainLoop' if loop.get('by_epoch') else 'IterBasedTrainLoop'
            named = {'type': kind, **loop}  # mmengine chooses so
        with self._building('train_cfg', named):
            return super().build_train_loop(loop)

    def register_hook(self, hook, priority=None) -> None:
        with self._building('custom_hooks', hook):
            super().register_hook(hook, priority)

    def train(self):
        with self._using():
            return super().train()

    def test(self):
        with self._using():
            return super().test()

    def call_hook(self, fn_name: str, **kwargs) -> None:
        self._last_call = fn_name, kwargs.get('batch_idx', 0)
        super().call_hook(fn_name, **kwargs)

    @contextmanager
    def _building(self, key: str, part: object) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            places = (path for path, x in _parts(self.cfg.to_dict()) if x == part)
            raise config_error(error, 'cannot be built', part, next(places, key)) from error

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Where nothing has worked yet, it is nearly always a setting or the data."""
        try:
            yield
        except Exception as error:
            told = config_error(error, self._stage())
            if told is not error:
                for handler in MMLogger.get_current_instance().handlers:
                    if isinstance(handler, logging.FileHandler) and handler.stream:
                        handler.stream.writelines(traceback.format_exception(error))
            raise told from error

    def _stage(self) -> str:
        """What fails now, if it is an error of the config, by the last call of the hooks."""
        name, number = self._last_call
        if not name:
            return 'cannot be built'
        if not any(x in name for x in ('train', 'val', 'test')):
            return ''
        if name in ('after_val_iter', 'after_test_iter'):
            loop: Any = self.val_loop if name == 'after_val_iter' else self.test_loop
            is_last = number + 1 == len(loop.dataloader)
            return 'fails where metrics are computed' if is_last else ''
        has_worked = self.iter if 'train' in name else number
        return '' if has_worked or name.startswith('after') else 'fails where it is first used'


def config_error(error: Exception, stage: str, part: object = None, path: str = '') -> Exception:
    """The same error, or one for the user that names the part of the config at ``path``."""
    if not stage or isinstance(error, UserError) or machine_fault(error):
        return error
    if any(text in str(error) for text in _NO_DATA):
        return UserError(
            'a data loader has no batch: there are fewer images than its batch_size, or filter_cfg '
            '(filter_empty_gt, min_size) leaves none.\n  Fix: a smaller batch_size or '
            'drop_last=False, or other filters'
        )
    message = f'{error.args[0] if len(error.args) == 1 else error}'.strip()
    path, fix = _slip(message, part, path)
    at = f', at {path}' if path else ''
    last = traceback.extract_tb(error.__traceback__)[-1]
    return UserError(
        f'the config {stage}{at}: {type(error).__name__}: {message}\n  Raised in {last.filename}, '
        f'line {last.lineno}.\n  Fix: {fix or "correct that part of the config, or the data"}'
    )


def _parts(part: object, path: str = '') -> Iterator[tuple[str, object]]:
    """A part of a config and all inside it, by their keys."""
    yield path, part
    items = part.items() if isinstance(part, dict) else ()
    if isinstance(part, list | tuple):
        items = enumerate(part)
    for key, value in items:
        yield from _parts(value, f'{path}.{key}' if path else str(key))


def _slip(message: str, part: object, path: str) -> tuple[str, str]:
    """The place of a name that is not known or of a number in quotes, and its fix, or ''."""
    unknown = re.search(r'([\w.]+) is not in the (?:\w+::)?([\w ]+) registry', message)
    setting = re.search(r"unexpected keyword argument '(\w+)'", message)
    known = [x for x in vars(roots).values() if isinstance(x, Registry)]
    for place, config in _parts(part, path):
        if not isinstance(config, dict):
            continue
        name = config.get('type')
        if name and unknown and name == unknown[1]:
            names = {}
            for root in (x for x in known if x.name == unknown[2]):
                for node in [root, *sorted(root.children.values(), key=lambda x: x.scope)]:
                    for x in node.module_dict:
                        names[x] = f'{node.scope}.{x}'.removeprefix('mmengine.')
            near = get_close_matches(name.split('.')[-1], names, 1, 0.8)
            return place, f'{names[near[0]]} in place of {name}' if near else ''
        if setting and setting[1] in config and name:
            made = name
            if isinstance(name, str):
                made = next(filter(None, (x.get(name) for x in known)), dict)
            names = [x for x in inspect.signature(made).parameters if x not in ('args', 'kwargs')]
            near = get_close_matches(setting[1], names, 1, 0.8)
            other = f'leave {setting[1]} out, or one of {", ".join(names)}'
            return place, f'{near[0]} in place of {setting[1]}' if near else other
    for place, config in _parts(part, path):
        if isinstance(config, str) and re.fullmatch(_NUMBER, config):
            return place, f'{place.rpartition(".")[2]}={config} without quotes'
    return path, ''
