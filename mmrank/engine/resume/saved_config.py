"""The config that mmengine keeps in a checkpoint, read as data."""

import ast
from typing import Any


def read_saved_config(text: str) -> dict[str, Any]:
    """Settings in the config text of a checkpoint.

    The text is parsed, not run: it is part of an untrusted file.

    Args:
        text: What mmengine saves as ``meta['cfg']``: assignments of
            literals and of ``dict(...)``.

    Returns:
        The settings by name, without those that are something else.
    """
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    settings = {}
    for statement in statements:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            continue
        try:
            value = _value(statement.value)
        except (ValueError, TypeError, RecursionError):
            continue
        settings[statement.targets[0].id] = value
    return settings


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Call):
        if not (isinstance(node.func, ast.Name) and node.func.id == 'dict'):
            raise ValueError('a call of something else than dict')
        if node.args or any(k.arg is None for k in node.keywords):
            raise ValueError('a dict of something else than keywords')
        return {k.arg: _value(k.value) for k in node.keywords}
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError('a dict with **')
        keys = [ast.literal_eval(key) for key in node.keys]
        return dict(zip(keys, map(_value, node.values)))
    if isinstance(node, ast.List | ast.Set):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    if isinstance(node, ast.Name) and node.id in ('inf', 'nan'):
        return float(node.id)
    return ast.literal_eval(node)
