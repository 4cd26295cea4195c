"""The command ``mmrank``: its commands by name.

This imports the standard library alone, so that a signal is handled before torch is loaded.
"""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

from mmrank import interruption
from mmrank.errors import show_user_errors
from mmrank.version import __version__

#: Module in ``mmrank.cli`` and summary of each command.
COMMANDS = {
    'train': ('train', 'train a config of mmrank, mmdet or mmpretrain'),
    'test': ('test', 'evaluate a checkpoint'),
    'new-config': ('new_config', 'write a config for boxes of your own'),
    'compare': ('compare', 'train your model with several losses'),
    'check coco': ('check.coco', 'check COCO annotation files, clean or merge them'),
    'check retrieval': ('check.retrieval', 'check data sets of image search'),
    'convert': ('convert', 'make a COCO file of YOLO, VOC or CSV labels'),
    'draw detections': ('draw.detections', 'boxes of detectors beside the annotations'),
    'draw pr-curves': ('draw.pr_curves', 'precision-recall curves of detectors'),
    'draw froc': ('draw.froc', 'recall by false alarms an image'),
    'draw retrieval': ('draw.retrieval', 'nearest images of queries, and metrics per class'),
    'draw embeddings': ('draw.embeddings', 'test embeddings on a plane, by t-SNE'),
    'draw seeds': ('draw.seeds', 'box plots of a comparison over seeds'),
    'draw training': ('draw.training', 'losses and metrics of trainings over their steps'),
    'demo': ('demo', 'train AP and focal loss on made-up images'),
    'doctor': ('doctor', 'say what is installed and what works'),
}
#: What the commands that handle signals from the start say when one ends them.
_HINTS = {
    'train': interruption.RESUME,
    'test': interruption.RESUME,
    'compare': interruption.AGAIN,
    'demo': interruption.AGAIN,
}


def run(name: str) -> NoReturn:
    """Run a command on ``sys.argv[1:]``, and exit with its status."""
    # Before torch is loaded. Threads that spin while they wait take the core of those that work.
    # With one busy core a step took 9.3 s in place of 0.2, and this makes it 0.6.
    os.environ.setdefault('GOMP_SPINCOUNT', '3000')
    hint = _HINTS.get(name, 'Interrupted.')
    if name in _HINTS:
        interruption.end_on_signals(hint)  # the imports below take seconds
    module, _ = COMMANDS[name]
    main = import_module(f'mmrank.cli.{module}').main
    sys.exit(show_user_errors(OSError, ImportError, on_interrupt=hint)(main)())


def describe(group: str) -> str:
    """The help of ``mmrank``, or of a command that has commands of its own."""
    program = f'mmrank {group}'.strip()
    lines = [f'usage: {program} COMMAND ...', '']
    for name, (_, summary) in COMMANDS.items():
        if name.startswith(group):
            lines.append(f'  {name.removeprefix(group).strip():<17} {summary}')
    return '\n'.join([*lines, '', f'{program} COMMAND --help has the options and examples.'])


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End without a message where the reader of the output, such as ``head``, has had enough."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        output = select.poll()
        output.register(sys.stdout.fileno(), 0)
        if not output.poll(0):
            raise  # another pipe
        # What is left in the buffer goes nowhere, also when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell says of a program that SIGPIPE has ended


@_reader_may_leave()
def main() -> NoReturn:
    """Run the command that the first words of the command line name."""
    words = sys.argv[1:]
    for count in (1, 2):
        name = ' '.join(words[:count])
        if name in COMMANDS:
            # argparse names the program by the first word.
            sys.argv = [f'mmrank {name}', *words[count:]]
            run(name)
    is_group = bool(words) and any(name.startswith(f'{words[0]} ') for name in COMMANDS)
    group = words.pop(0) if is_group else ''
    if not words or words[0] in ('-h', '--help'):
        print(describe(group))
        sys.exit(0 if words else 2)
    if words[0] == '--version':
        print(f'mmrank {__version__}')
        sys.exit()
    known = [name.removeprefix(group).split()[0] for name in COMMANDS if name.startswith(group)]
    program = f'mmrank {group}'.strip()
    fix = (get_close_matches(words[0], known, 1) or ['--help'])[0]
    sys.stderr.write(f'error: {program} has no command {words[0]!r}.\n  Fix: {program} {fix}\n')
    sys.exit(2)


if __name__ == '__main__':
    main()
