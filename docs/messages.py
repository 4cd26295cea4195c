"""Every message that mmrank and its tools can raise or warn with, read from the source.

hooks.py puts them at the end of the troubleshooting page when the site is built, so that the page
cannot be out of date.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TOOLS = [ROOT / 'tools/research']
ERRORS = {'UserError', 'ValueError', 'TypeError', 'RuntimeError', 'KeyError'}
ERRORS |= {'UserTypeError', 'UserKeyError', 'UserImportError', 'UserNotImplementedError'}
ERRORS |= {'MissingFileError', 'CheckpointError'}
WARNINGS = {'warn', 'warning', 'print_log', '_warn_once'}
FIX = re.compile(r'\s*\bFix:\s*')
#: Folder of mmrank, and what its section is called.
SECTIONS = {
    'cli': 'Commands',
    'runners': 'Starting a training or a test',
    'experiments': 'Comparing trainings',
    'own_data': 'A config for your data',
    'annotations': 'Annotation files',
    'engine': 'Hooks, optimisers, resuming',
    'models': 'Models and heads',
    'losses': 'Losses',
    'datasets': 'Data sets, samplers, checks of data',
    'evaluation': 'Metrics',
    'calibration': 'Calibration',
    'metrics': 'Metrics of scores and embeddings',
    'functional': 'Functions',
    'state': 'State',
    'pictures': 'Figures and tables',
    '': 'Settings, files and checkpoints',
}


class Message(NamedTuple):
    """One message of the source.

    Attributes:
        kind: Class of the error, or ``warning``.
        text: The message, ``...`` for each value that is filled in.
        fix: What its ``Fix:`` says; empty without one.
        path: File below the repository.
    """

    kind: str
    text: str
    fix: str
    path: str


def template(node: ast.expr) -> str:
    """Text of a string, an f-string or a sum of them, with ``...`` for values."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else '...'
    if isinstance(node, ast.JoinedStr):
        return ''.join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return '...'


def called(node: ast.expr) -> str:
    """Last name of a callee: ``warn`` of ``warnings.warn(...)``."""
    return getattr(node, 'attr', getattr(node, 'id', ''))


def messages_of(path: Path) -> Iterator[Message]:
    """The messages of one file, in its order."""
    name = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        kind = called(call.func)
        if not isinstance(node, ast.Raise):
            if kind not in WARNINGS:
                continue
            kind = 'warning'
        elif kind not in ERRORS:
            continue
        text, *fix = FIX.split(' '.join(template(call.args[0]).split()), 1)
        if len(text.replace('...', '').strip()) > 8:
            yield Message(kind, text, ''.join(fix), name)


def all_messages() -> list[Message]:
    """The messages of mmrank and its tools, each once."""
    found = {}
    paths = [x for folder in (ROOT / 'mmrank', *TOOLS) for x in sorted(folder.rglob('*.py'))]
    for path in paths:
        for message in messages_of(path):
            found.setdefault((message.text, message.path), message)
    return list(found.values())


def as_markdown() -> str:
    """The messages as sections of the troubleshooting page."""
    sections = {folder: [] for folder in SECTIONS}
    for message in all_messages():
        folder = message.path.split('/')[1]
        sections[folder if folder in sections else ''].append(message)
    lines = []
    for folder, title in SECTIONS.items():
        lines += [f'### {title}', '']
        for message in sorted(sections[folder], key=lambda m: m.text):
            # Two spaces at its end: the fix begins a line.
            lines.append(f'* `{_code(message.text)}`  ')
            if message.fix:
                lines.append(f'  **Fix:** `{_code(message.fix)}`')
        lines.append('')
    return '\n'.join(lines)


def _code(text: str) -> str:
    return text.replace('`', "'")
