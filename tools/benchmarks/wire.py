"""What a loss of scope='global' sends in a step, and how long that takes: a table.

    python tools/benchmarks/wire.py

It is computed, not measured. Bytes are what a process sends where a ring does the collectives; a
collective of n processes waits for 2 log2(n) hops in addition. scope='local' sends nothing.
"""

import math
from collections.abc import Callable

from mmrank.cli.options import tool_parser

#: Bytes a second in one direction, and seconds of a hop.
LINKS = {
    'NVLink of an H100, 450 GB/s': (450e9, 3e-6),
    'Ethernet, 100 Gbit/s a machine': (12.5e9, 20e-6),
}
RANKS = (8, 64, 512)
#: ``reduce`` or ``gather``, and the bytes of the tensor that a process passes.
Collectives = list[tuple[str, int]]


def ranking(ranks: int, positives: int) -> Collectives:
    """Of scores: their width, the positives, and two sums in float64 of each of all of them."""
    gathered = [('gather', positives), ('gather', 4 * positives)]
    return [('reduce', 40), *gathered, ('reduce', 16 * ranks * positives)]


def contrast(ranks: int, batch: int, width: int, state: int = 0) -> Collectives:
    """Of two views: sizes, embeddings, indices and ``state`` numbers a sample; the gradient."""
    views = 2 * 4 * batch * width
    gathered = [('gather', views), ('gather', 8 * batch)]
    if state:
        gathered.append(('gather', 8 * state * batch))
    sums = [('reduce', 8 * (3 * ranks + 4)), ('reduce', 4)]
    return [*gathered, *sums, ('reduce', ranks * views)]


def own_negatives(ranks: int, batch: int, state: int) -> Collectives:
    """Of two views with scope='local': sizes and ``state`` numbers a sample."""
    return [('reduce', 8 * (3 * ranks + 4)), ('gather', 8 * state * batch)]


def search(ranks: int, batch: int, width: int, positives: int) -> Collectives:
    """Of embeddings and classes: the queries of all ranks, each with a ranking over all ranks.

    ``positives`` belong to a query on one rank, where it has most.
    """
    lists = ranking(ranks, ranks * batch * positives)
    gathered = [('gather', 4 * batch * width), ('gather', 8 * batch)]
    return [
        ('reduce', 8 * (2 * ranks + 4)),
        *gathered,
        *lists,
        ('reduce', 4 * ranks * batch * width),
    ]


def sent(ranks: int, collectives: Collectives) -> float:
    """Bytes that a process sends."""
    factors = dict(reduce=2 * (ranks - 1) / ranks, gather=ranks - 1)
    return sum(factors[kind] * size for kind, size in collectives)


def seconds(ranks: int, collectives: Collectives, link: tuple[float, float]) -> float:
    rate, hop = link
    hops = 2 * math.log2(ranks) * len(collectives)
    return sent(ranks, collectives) / rate + hops * hop


#: What a process has in a step, and its collectives for a number of processes.
ROWS: dict[str, Callable[[int], Collectives]] = {
    'a ranking, 500 positives among any number of scores': lambda n: ranking(n, 500),
    '`InfoNCELoss`, 256 pairs of 512 numbers': lambda n: contrast(n, 256, 512),
    '`SogCLRLoss`, the same': lambda n: contrast(n, 256, 512, state=2),
    "`SogCLRLoss(scope='local')`, the same": lambda n: own_negatives(n, 256, state=2),
    '`EmbeddingLoss`, 64 images of 512 numbers, 4 of a class': lambda n: search(n, 64, 512, 4),
    'gradients of a ResNet-50, for comparison': lambda n: [('reduce', 4 * 25_557_032)],
}


def table() -> str:
    """The rows in Markdown."""
    numbers = ', '.join(map(str, RANKS))
    head = ['a process has', f'MB sent by each of {numbers} processes']
    lines = [[*head, *(f'ms, {link}' for link in LINKS)], ['---'] * (2 + len(LINKS))]
    for name, of_ranks in ROWS.items():
        columns = [[sent(n, of_ranks(n)) / 1e6 for n in RANKS]]
        for link in LINKS.values():
            columns.append([1000 * seconds(n, of_ranks(n), link) for n in RANKS])
        texts = (', '.join(f'{x:,.2g}' if x < 10 else f'{x:,.0f}' for x in y) for y in columns)
        lines.append([name, *texts])
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def main() -> None:
    tool_parser(__doc__).parse_args()
    print(table())


if __name__ == '__main__':
    main()
