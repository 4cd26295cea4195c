"""Check a loss of any package.

Example::

    python -m mmrank.testing torch.nn:CrossEntropyLoss --set label_smoothing=0.1
    python -m mmrank.testing my_losses:MyLoss --call embeddings --slow
"""

import argparse
import ast
import functools
import importlib
import inspect
import sys

from mmrank.errors import UserError, show_user_errors
from mmrank.testing.calls import CALLS
from mmrank.testing.report import CHECKS, check_loss


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        prog='python -m mmrank.testing',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('loss', help='package.module:Name of a class or a function')
    parser.add_argument('--call', default='scores', help=f'one of {", ".join(CALLS)}')
    parser.add_argument(
        '--set', nargs='+', default=[], metavar='KEY=VALUE', help='arguments of the loss'
    )
    parser.add_argument('--checks', nargs='+', help=f'default: all; of {", ".join(CHECKS)}')
    parser.add_argument('--slow', action='store_true', help='the compiler and processes, too')
    parser.add_argument('--own-gradient', default='', help='why the gradient is set by a rule')
    parser.add_argument(
        '--promise', nargs='+', default=[], help='checks beyond the usual ones that it must pass'
    )
    return parser


def setting(text: str) -> tuple[str, object]:
    """``tau=0.1`` as ``('tau', 0.1)``; what is not a Python literal is a string."""
    key, equals, value = text.partition('=')
    if not equals:
        raise UserError(f'--set {text!r} has no value. Fix: {text}=VALUE')
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def load(name: str) -> object:
    """A class or a function by ``package.module:Name``, else UserError."""
    module, colon, attribute = name.partition(':')
    if not colon:
        raise UserError(f'loss {name!r} names no class. Fix: package.module:Name')
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f'module {module!r} cannot be imported: {error}. Fix: install it, or set PYTHONPATH'
        ) from error
    if not hasattr(found, attribute):
        raise UserError(f'module {module!r} has no {attribute!r}. Fix: a name that it defines')
    return getattr(found, attribute)


@show_user_errors()
def main(arguments: list[str] | None = None) -> int:
    """Show the table; 1 if a check failed, else 0."""
    args = parser().parse_args(arguments)
    sys.path.insert(0, '')
    loss = load(args.loss)
    settings = dict(map(setting, args.set))
    if settings or not inspect.isclass(loss):
        loss = functools.partial(loss, **settings)
    unknown = [x for x in args.promise if x not in CHECKS]
    if unknown:
        raise UserError(f'--promise {unknown[0]!r} is unknown. Fix: one of {", ".join(CHECKS)}')
    report = check_loss(
        loss,
        args.call,
        checks=args.checks,
        slow=args.slow,
        own_gradient=args.own_gradient,
        promises=args.promise,
    )
    sys.stdout.write(f'{report}\n')
    return int(bool(report.failures))


if __name__ == '__main__':
    sys.exit(main())
