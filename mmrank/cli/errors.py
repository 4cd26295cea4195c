"""Runs a tool so that what a user can mend is one message, and a signal ends it in order."""

import argparse
import inspect
import logging
import re
import signal
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches

import torch
from mmengine.logging import MMLogger

from mmrank import interruption
from mmrank.errors import UserError, machine_fault, show_user_errors

#: Arguments of mmengine's functions that are a part of a config.
_PARTS = ('cfg', 'dataloader', 'loop', 'seed')
#: What mmengine says of no data, where it builds a data set or a scheduler.
_NO_DATA = ('need at least one array to concatenate', '`epoch_length` must be a positive integer')
_SETTING = str | int | float | list | tuple | dict | None


def _config_error(error: Exception) -> Exception:
    """The same error, or one for the user if nothing has worked yet.

    Such is one from building a part of the config, from the first iteration, or from what computes
    the metrics: nearly always a setting or the data. The log file gets the traceback.
    """
    if isinstance(error, UserError) or machine_fault(error):
        return error
    if any(text in str(error) for text in _NO_DATA):
        return UserError(
            'a data loader has no batch: there are fewer images than its batch_size, or filter_cfg '
            '(filter_empty_gt, min_size) leaves none.\n  Fix: a smaller batch_size or '
            'drop_last=False, or other filters'
        )
    from mmengine.runner import BaseLoop  # seconds, which the help of a tool need not take

    part = ''
    where = ''
    loop = None
    built = None
    registry = None
    fix = 'correct that part of the config, or the data'
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_name
        values = frame.f_locals
        own = values.get('self')
        built = values.get('obj_cls', built)
        registry = values.get('registry', registry)
        if name == 'build_runner':
            where = 'cannot be built'
        elif 'mmengine' in frame.f_code.co_filename:
            if isinstance(own, BaseLoop) and name != '__init__':
                loop = own
                has_worked = getattr(own, '_iter', values.get('idx', 0))
                where = '' if has_worked else 'fails where it is first used'
            if name.startswith('build'):
                where = 'cannot be built'
            elif name == 'evaluate':
                where = 'fails where metrics are computed'
            configs = (_plain(values[x]) for x in _PARTS if x in values)
            if (config := next((x for x in configs if x is not None), None)) is not None:
                part = f', at {config!r:.300}'
                fix = _unquoted(config) or fix
        if loop is not None and isinstance(own, torch.nn.Module):
            names = (name for name, x in loop.runner.model.named_modules() if x is own and name)
            part = next((f', in model.{name}' for name in names), part)
    if not where:
        return error
    if where == 'cannot be built':
        fix = _near_name(str(error), built, registry) or fix
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f'{error.args[0] if len(error.args) == 1 else error}'.strip()
    for handler in MMLogger.get_current_instance().handlers if loop is not None else ():
        if isinstance(handler, logging.FileHandler):
            handler.stream.writelines(traceback.format_exception(error))
    return UserError(
        f'the config {where}{part}: {type(error).__name__}: {message}\n  Raised in '
        f'{last.filename}, line {last.lineno}.\n  Fix: {fix}'
    )


def _plain(value: object) -> object:
    """A part of a config without what is not a setting; None for what is not a part of one."""
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if isinstance(v, _SETTING) and k != 'params'}
    return value if isinstance(value, str | int) else None


def _near_name(message: str, built: object, registry: object) -> str:
    """The name to take for one that a class or a registry does not have; '' if none is known."""
    names = {}
    other = ''
    found = re.search(r"unexpected keyword argument '(\w+)'", message)
    if found and built:
        names = {x: x for x in inspect.signature(built).parameters if x not in ('args', 'kwargs')}
        other = f'leave {found[1]} out, or one of {", ".join(names)}'
    elif found := re.search(r'([\w.]+) is not in the', message):
        root = registry._get_root_registry()
        for node in [root, *sorted(root.children.values(), key=lambda x: x.scope)]:
            names |= {x: f'{node.scope}.{x}'.removeprefix('mmengine.') for x in node.module_dict}
    near = get_close_matches(found[1].split('.')[-1], names, 1, 0.8) if found else []
    return f'{names[near[0]]} in place of {found[1]}' if near else other


def _unquoted(config: object) -> str:
    """How to write numbers that a part of the config has in quotes; '' without one."""
    texts = config.items() if isinstance(config, dict) else ()
    found = [(k, v) for k, v in texts if isinstance(v, str) and re.fullmatch(r'-?[\d.e-]+', v)]
    return ', '.join(f'{k}={v} without quotes' for k, v in found)


def run(main: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> int:
    """Run a tool without a traceback; return its exit status, 2 for the user's errors."""

    def end_in_order(args: argparse.Namespace) -> int:
        interruption.end_on_signals()
        try:
            return main(args) or 0
        except Exception as error:
            # After a signal any error is its consequence: a data loading worker that got it too, a
            # process that is gone.
            number = interruption.received_signal()
            if number is None:
                raise _config_error(error) from error
            sys.stderr.write(f'{type(error).__name__}: {error}\n')
            interruption.leave(number)
        except interruption.Interrupted:
            number = interruption.received_signal() or signal.SIGINT
            # Here, while the traceback still holds the data loader, whose own end waits for its
            # workers for seconds.
            interruption.leave(number)
        finally:
            interruption.defer_signals(False)

    return show_user_errors()(end_in_order)(args)
