"""Every message that mmrank and its tools can raise or warn with, read from the source.

hooks.py puts them at the end of the troubleshooting page when the site is built, so that the page
cannot be out of date.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TOOLS = [ROOT / 'tools/research']
#: Errors whose second argument is the fix, and errors of Python.
WITH_FIX = {'UserError', 'UserTypeError', 'UserKeyError', 'UserImportError'}
WITH_FIX |= {'UserNotImplementedError', 'MissingFileError', 'CheckpointError'}
ERRORS = {*WITH_FIX, 'ValueError', 'TypeError', 'RuntimeError', 'KeyError'}
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


def template(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    """Text of a string, an f-string or a sum of them, with ``...`` for values.

    ``known`` has what the names of a function stand for.
    """
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else '...'
    if isinstance(node, ast.JoinedStr):
        return ''.join(template(part, known) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left, known) + template(node.right, known)
    if isinstance(node, ast.FormattedValue):
        return template(node.value, known) if isinstance(node.value, ast.Name) else '...'
    if isinstance(node, ast.Name) and node.id in known:
        return template(known[node.id], {})
    return '...'


def called(node: ast.expr) -> str:
    """Last name of a callee: ``warn`` of ``warnings.warn(...)``."""
    return getattr(node, 'attr', getattr(node, 'id', ''))


def calls_of(
    node: ast.AST, known: dict[str, ast.expr]
) -> Iterator[tuple[str, ast.Call, dict[str, ast.expr]]]:
    """Kind and call of each message below a node, and what names stand for there."""
    if isinstance(node, ast.FunctionDef):
        known = {}
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        known[node.targets[0].id] = node.value
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        name = node.target.id
        known[name] = ast.BinOp(known.get(name, node.target), node.op, node.value)
    call = node.exc if isinstance(node, ast.Raise) else node
    if isinstance(call, ast.Call) and call.args:
        kind = called(call.func)
        if isinstance(node, ast.Raise) and kind in ERRORS:
            yield kind, call, known
        elif not isinstance(node, ast.Raise) and kind in WARNINGS:
            yield 'warning', call, known
        elif kind == 'require_numbers':
            name, _, _, wanted, fix = call.args
            text = name
            found = ast.Constant(', got numbers from ... to ...')
            for part in (ast.Constant(' must be '), wanted, found):
                text = ast.BinOp(text, ast.Add(), part)
            yield 'UserError', ast.Call(call.func, [text, fix], []), known
    for child in ast.iter_child_nodes(node):
        yield from calls_of(child, known)


def messages_of(path: Path) -> Iterator[Message]:
    """The messages of one file, in its order."""
    name = path.relative_to(ROOT).as_posix()
    for kind, call, known in calls_of(ast.parse(path.read_text('utf-8')), {}):
        text, *fix = FIX.split(' '.join(template(call.args[0], known).split()), 1)
        if not fix and len(call.args) > 1 and kind in WITH_FIX:
            text = f'{text}.'
            fix = [' '.join(template(call.args[1], known).split())]
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
