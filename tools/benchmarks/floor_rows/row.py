"""What a row of the table of floors is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Sizes:
    """Sizes of all works, and the device.

    Attributes:
        rows: Boxes or images with scores.
        classes: Columns of the scores.
        positives: Rows with a class; the others are background.
        queries: Images of a retrieval batch, each of which searches.
        gallery: Images that are searched: the queries, and a memory.
        class_size: Images of a class.
        dimensions: Length of their embeddings.
        batch: Samples with two views of a contrastive batch.
        width: Length of their embeddings.
        samples: Samples of the training set, for state of each.
        pairs: Users, and items, of a two-tower batch.
        channels: Length of their embeddings.
        searched: Images of a test set of retrieval.
        listed: Length of the lists of SoDeep.
        device: ``cpu`` or ``cuda``.
    """

    rows: int = 25_000
    classes: int = 80
    positives: int = 1000
    queries: int = 450
    gallery: int = 450
    class_size: int = 5
    dimensions: int = 512
    batch: int = 512
    width: int = 256
    samples: int = 100_000
    pairs: int = 1024
    channels: int = 64
    searched: int = 10_000
    listed: int = 100
    device: str = 'cpu'


#: Small enough for a test.
QUICK = Sizes(
    rows=30,
    classes=3,
    positives=9,
    queries=12,
    gallery=12,
    class_size=3,
    dimensions=8,
    batch=8,
    width=8,
    samples=40,
    pairs=10,
    channels=4,
    searched=60,
    listed=6,
)

Step = Callable[[], object]


@dataclass
class Sides:
    """What is timed.

    Attributes:
        floor: The work that nothing can do without.
        ours: The loss, forward and backward, or the metric.
        peers: Other implementations by name. Losses of one shape that are
            not the same, as cross-entropy, serve as a peer, too.
        slow_peers: Peers that take seconds and run once.
    """

    floor: Step
    ours: Step
    peers: dict[str, Step] = field(default_factory=dict)
    slow_peers: dict[str, Step] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One loss or metric.

    Attributes:
        name: Registered name.
        setting: What tells it from other rows of the name, or ''.
        work: What it is called with.
        floor: What the floor is.
        prepare: Makes tensors and sides.
    """

    name: str
    setting: str
    work: str
    floor: str
    prepare: Callable[[], Sides]


def products(shapes: Sequence[tuple[int, int, int]], device: str) -> Step:
    """Bare matrix products, into buffers that are there.

    Args:
        shapes: (m, k, n) of each.
        device: Where.

    Returns:
        Runs all of them.
    """
    work = []
    for m, k, n in shapes:
        left = torch.randn(m, k, device=device)
        right = torch.randn(k, n, device=device)
        work.append((left, right, left.new_empty(m, n)))

    def step() -> None:
        for left, right, out in work:
            torch.mm(left, right, out=out)

    return step
