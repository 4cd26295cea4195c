"""Check of a setting that has a few choices."""

from collections.abc import Collection


def one_of(name: str, value, allowed: Collection) -> None:
    """Refuse an unknown choice.

    Args:
        name: Of the setting.
        value: What was given.
        allowed: What could have been given.

    Raises:
        ValueError: If ``value`` is not in ``allowed``.
    """
    if value not in allowed:
        raise ValueError(
            f'{name}={value!r} is unknown; use one of {tuple(allowed)}'
        )
