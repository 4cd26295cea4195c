"""Parts of the classes of a data set, the same on every machine."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping


def split_classes(
    groups: Mapping[str, str], fraction: float, seed: int
) -> tuple[list[str], list[str]]:
    """Set a fraction of the classes aside, in every group alike.

    The order in which classes are taken is that of a hash of seed and name.
    It depends neither on the order of the list nor on a random number
    generator, and a class that is added moves few others.

    Args:
        groups: Group, like a super-class, of every class.
        fraction: Share of the classes of a group that is set aside, in
            [0, 1); rounded to the nearest number, and at least one class of
            the largest group.
        seed: Another seed makes another split.

    Returns:
        The classes that stay and those set aside, both in the order given.

    Raises:
        ValueError: If ``fraction`` is out of range, or nothing would stay.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f'a fraction must be in [0, 1), got {fraction}')
    members = defaultdict(list)
    for name, group in groups.items():
        members[group].append(name)
    aside: set[str] = set()
    for names in members.values():
        names.sort(key=lambda name: _order(name, seed))
        aside.update(names[: int(fraction * len(names) + 0.5)])
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


def _order(name: str, seed: int) -> bytes:
    return hashlib.sha256(f'{seed}:{name}'.encode()).digest()
