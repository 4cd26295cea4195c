r"""What state that is spread over ranks costs: memory, network and time.

    python tools/analysis_tools/sharded_state_cost.py
    python tools/analysis_tools/sharded_state_cost.py --samples 400000000 --ranks 8 --batch 256
    python tools/analysis_tools/sharded_state_cost.py --measure \
        --samples 1000000 --ranks 1 2 4 --batch 64 --steps 2

What the ranks send each other for random batches with storage='sharded' of
mmrank.BimodalISogCLRLoss is counted; the busiest rank decides the time, without latency. Next to it
stands storage='device', where every rank has the whole state. With --measure the loss runs on as
many gloo processes of this machine. Written: sharded_state_cost.md and .csv.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.errors import UserError, show_user_errors
from mmrank.losses import BimodalISogCLRLoss
from mmrank.state.sharding import Shard
from mmrank.testing.processes import run_on_ranks

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.tables import write_table

INDEX, NUMBER, MEASURED = 8, 4, 8  # bytes: int64, float32, float64
#: Length of an embedding, to compare, and GB/s of a rank, in and out at once.
DIM, BANDWIDTH = 512, 25.0
# Tables of mmrank.BimodalISogCLRLoss (images, texts), numbers of a sample in each (log s, tau,
# momentum), and what a batch measures of a sample (log g, the gradient of the temperature).
STATES, QUANTITIES, NEWS = 2, 3, 2


def sharded_traffic(ids: list[Tensor]) -> tuple[Tensor, ...]:
    """(W,) bytes that each rank sends in a step, and receives, with the state in shards."""
    ranks = len(ids)
    asked = torch.stack([(x % ranks).bincount(minlength=ranks) for x in ids])
    asked.fill_diagonal_(0)
    wanted, owed = asked.sum(1), asked.sum(0)
    counts = INDEX * (ranks - 1)
    up = INDEX + STATES * NEWS * MEASURED
    down = STATES * QUANTITIES * NUMBER
    return (counts + wanted * up + owed * down, counts + owed * up + wanted * down)


def whole_traffic(ids: list[Tensor]) -> int:
    """Bytes that a rank receives in a step with the whole state on each."""
    row = 1 + QUANTITIES + NEWS
    others = sum(map(len, ids)) - min(map(len, ids))
    return others * STATES * row * MEASURED


def parse_args() -> argparse.Namespace:
    parser = tool_parser(
        __doc__,
        samples=(10**9, 'samples, or pairs, of the training set'),
        batch=(512, 'samples of a rank in a step'),
        steps=(20, 'random batches'),
        ranks=([1, 2, 4, 8, 16, 32, 64], 'numbers of ranks'),
        measure=(False, 'also run mmrank.BimodalISogCLRLoss and count what it does'),
    )
    parser.add_argument('--out-dir', type=Path, default=Path('work_dirs/sharded_state_cost'))
    args = parser.parse_args()
    for name, value in vars(args).items():
        values = value if isinstance(value, list) else [value]
        if name not in ('out_dir', 'measure') and not all(x > 0 for x in values):
            raise UserError(f'--{name} must be > 0, got {value}')
    return args


def batches(args: argparse.Namespace, ranks: int) -> Iterator[Tensor]:
    """(ranks, batch) random indices, step by step."""
    g = torch.Generator().manual_seed(0)
    for _ in range(args.steps):
        yield torch.randint(args.samples, (ranks, args.batch), generator=g)


def measure_rank(rank: int, args: argparse.Namespace, ranks: int) -> tuple[int, int]:
    """Train on one of several processes; return bytes of state and sent."""
    loss = BimodalISogCLRLoss(args.samples, storage='sharded')
    for state in loss.states():
        state.is_saved = True  # nothing is to be kept
    sent = []
    send = dist.all_to_all_single

    def counted(output, rows, taken=None, given=None, **kwargs):
        given = given or [len(rows) // ranks] * ranks
        row = rows[:1].numel() * rows.element_size()
        sent[-1] += row * (len(rows) - given[rank])
        return send(output, rows, taken, given, **kwargs)

    dist.all_to_all_single = counted
    for ids in batches(args, ranks):
        sent.append(0)
        views = torch.randn(2, args.batch, 8).requires_grad_()
        loss(*views, ids[rank]).backward()
    return sum(x.num_bytes for x in loss.states()), max(sent)


def measured(args: argparse.Namespace, ranks: int) -> tuple[float, ...]:
    """Most GB of state and KB sent in a step, of any rank."""
    took = run_on_ranks(measure_rank, ranks, args, ranks)
    memory, sent = (max(x) for x in zip(*took))
    return memory / 1e9, sent / 1e3


def cost(args: argparse.Namespace, ranks: int) -> tuple[float, ...]:
    """One row of the table, see :func:`main`."""
    most = slowest = 0
    for ids in batches(args, ranks):
        sent, received = sharded_traffic(list(ids))
        most = max(most, int(sent.max()))
        slowest = max(slowest, int(sent.max()), int(received.max()))
    whole = whole_traffic(list(ids))
    views = 2 * DIM * NUMBER * args.batch * (ranks - 1)
    memory = Shard(args.samples, 0, ranks).rows * STATES * QUANTITIES * NUMBER
    rate = BANDWIDTH * 1e9
    traffic = (most / 1e3, 1e6 * (slowest / rate), whole / 1e3, 1e6 * (whole / rate))
    return (memory / 1e9, *traffic, views / 1e6)


@show_user_errors()
def main() -> None:
    args = parse_args()
    rows = []
    header = ['ranks', 'state GB a rank', 'KB sent a step', 'µs', 'KB received, whole state']
    header += ['µs, whole state', 'MB of embeddings']
    header += ['measured GB', 'measured KB'] if args.measure else []
    for ranks in args.ranks:
        rows.append((ranks, *cost(args, ranks), *(measured(args, ranks) if args.measure else ())))
    paths = write_table(
        header,
        rows,
        args.out_dir / 'sharded_state_cost',
        'State spread over ranks',
        f'{args.samples:,} samples, {args.batch} a rank and step, {STATES} x '
        f'{QUANTITIES} numbers a sample; the busiest rank of {args.steps} random batches, at '
        f'{BANDWIDTH:g} GB/s without latency.',
    )
    print(paths[0].read_text('utf-8'))
    for path in paths:
        print(f'wrote {path}')


if __name__ == '__main__':
    sys.exit(main())
