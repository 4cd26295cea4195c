"""Parts of the classes of a data set, the same on every machine."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping

from mmrank.errors import UserError


def split_classes(
    groups: Mapping[str, str], fraction: float, seed: int, count: int | None = None
) -> tuple[list[str], list[str]]:
    """Set a fraction of the classes aside, in every group alike.

    The order in which classes are taken is that of a hash of seed and name.
    It depends neither on the order of the list nor on a random number generator, and a class that
    is added moves few others.

    Args:
        groups: Group, like a super-class, of every class.
        fraction: Share of the classes of a group that is set aside, in
            [0, 1); rounded to the nearest number, and at least one class of the largest group.
        seed: Another seed makes another split.
        count: Number of classes to set aside instead, shared by the groups
            in proportion to their size.

    Returns:
        The classes that stay and those set aside, both in the order given.

    Raises:
        ValueError: If ``fraction`` is out of range, or nothing would stay.
        UserError: If ``count`` is not below the number of classes.
    """
    if count is not None and not 0 < count < len(groups):
        raise UserError(
            f'num_val_classes={count} of {len(groups)} classes. Fix: a number '
            f'from 1 to {len(groups) - 1}; None takes a fraction'
        )
    if not 0 <= fraction < 1:
        raise ValueError(f'a fraction must be in [0, 1), got {fraction}')
    members = defaultdict(list)
    for name, group in groups.items():
        members[group].append(name)
    sizes = {group: len(names) for group, names in members.items()}
    if count is None:
        share = {g: int(fraction * n + 0.5) for g, n in sizes.items()}
    else:
        share = _proportional(sizes, count)
    aside: set[str] = set()
    for group, names in members.items():
        names.sort(key=lambda name: _order(name, seed))
        aside.update(names[: share[group]])
    if fraction and not aside:
        largest = max(members.values(), key=len, default=[])
        aside.update(largest[:1])
    stay = [name for name in groups if name not in aside]
    if not stay:
        raise ValueError(
            f'a fraction of {fraction} of {len(groups)} classes leaves none. '
            'Fix: set a smaller fraction'
        )
    return stay, [name for name in groups if name in aside]


def _proportional(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Whole shares of ``count``, by the largest remainders."""
    total = sum(sizes.values())
    share = {group: count * n // total for group, n in sizes.items()}
    by_remainder = sorted(sizes, key=lambda group: (-(count * sizes[group] % total), group))
    for group in by_remainder[: count - sum(share.values())]:
        share[group] += 1
    return share


def _order(name: str, seed: int) -> bytes:
    return hashlib.sha256(f'{seed}:{name}'.encode()).digest()
