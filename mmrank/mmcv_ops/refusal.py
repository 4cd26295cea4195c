"""What is said of an operator that mmrank does not have."""

from typing import NoReturn

from mmrank.errors import UserNotImplementedError


def refuse_operator(name: str) -> NoReturn:
    """Raise NotImplementedError that names an operator and what to do."""
    raise UserNotImplementedError(
        f"mmcv's operator {name!r} needs compiled code, and mmrank has none in its place. "
        'Fix: compile mmcv (tools/bootstrap.py --compile-mmcv, or `pip install '
        '--no-build-isolation --no-cache-dir mmcv` next to torch), or choose a config without '
        'this operator.'
    )
