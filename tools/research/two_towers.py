r"""The losses of two towers on MovieLens-1M, tuned alike.

    python tools/research/two_towers.py data/ml1m tools/research/records

DATA has ``train.csv.gz`` and ``test.csv.gz``. Each loss is trained at each of ``--learning-rates``
on nine tenths of the training pairs and measured on the rest; then at its best rate on all of them,
with each of ``--seeds``, and measured once on the test pairs: all items of each user, training
pairs left out. An interrupted run resumes. results.py makes the table.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from mmengine.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dataset_converters.split_interactions import split_file
from lib.common.records import FACTS
from lib.common.training_plan import Record
from mmrank.errors import show_user_errors
from research.in_batch.training import StepwiseTraining, TwoTowerData

CONFIG = Path(__file__).resolve().parents[2] / (
    'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'
)
METRICS = {'P@5': 'top_k/precision@5', 'R@25': 'top_k/recall@25', 'NDCG@25': 'top_k/ndcg@25'}
#: Weight of the negatives of unbiased_omega: as in pos_neg at a batch ratio of 1e-1.
OMEGA = 0.316
SOFTMAX = dict(type='mmrank.InBatchSoftmaxLoss')
COUNTS = dict(SOFTMAX, frequency='counts')


def in_batch(mode: str, pointwise: str) -> dict:
    """Config of an in-batch loss."""
    more = dict(omega=OMEGA) if mode == 'unbiased_omega' else {}
    return dict(type='mmrank.InBatchLoss', mode=mode, pointwise=pointwise, **more)


#: Loss and uniform candidates of each method, the order of the work.
METHODS = {
    'softmax, logQ': (COUNTS, 0),
    'softmax, refined logQ': (dict(COUNTS, refined=True), 0),
    'unbiased, square': (in_batch('unbiased', 'square'), 0),
    'unbiased, logistic': (in_batch('unbiased', 'logistic'), 0),
    'softmax': (dict(SOFTMAX, frequency='none'), 0),
    'softmax, logQ, mixed': (COUNTS, 512),
    'softmax, refined logQ, mixed': (dict(COUNTS, refined=True), 512),
    'softmax, logQ, streaming': (dict(SOFTMAX, num_buckets=3018), 0),
    **{
        f'{mode}, {pointwise}': (in_batch(mode, pointwise), 0)
        for pointwise in ('square', 'logistic')
        for mode in ('unbiased_omega', 'sogram', 'pos_neg', 'in_batch', 'popularity')
    },
}


def read_data(folder: Path) -> TwoTowerData:
    """The pairs of ``train.csv*`` and ``test.csv*`` of a folder."""
    cfg = Config.fromfile(CONFIG)
    for kind in ('train', 'val'):
        dataset = cfg[f'{kind}_dataloader'].dataset
        dataset.data_root = str(folder)
        for key, name in (('ann_file', kind), ('train_ann_file', 'train')):
            if key in dataset:
                name = 'test' if name == 'val' else name
                dataset[key] = next(folder.glob(f'{name}.csv*')).name
    return TwoTowerData(cfg)


def measure(data: TwoTowerData, method: str, seed: int, args, lr: float) -> tuple[float, dict]:
    """CPU seconds of a training, and its metrics."""
    loss, num_uniform = METHODS[method]
    start = time.process_time()
    training = StepwiseTraining(data, loss, args.batch_size, lr, seed, num_uniform=num_uniform)
    training.train(args.steps)
    found = training.evaluate()
    return time.process_time() - start, {k: found[name] / 100 for k, name in METRICS.items()}


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('data', type=Path)
    add('out', type=Path, help='folder of the record, two_towers.csv')
    add('--methods', nargs='+', choices=METHODS, default=list(METHODS), metavar='METHOD')
    add('--batch-size', type=int, default=1024)
    add('--steps', type=int, default=500)
    add('--learning-rates', type=float, nargs='+', default=[2.0**-x for x in (4, 3, 2, 1)])
    add('--seeds', type=int, nargs='+', default=[0, 1, 2])
    add('--tune-seed', type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    fields = [*(x for x in FACTS if x != 'hash'), *METRICS]
    record = Record(args.out / 'two_towers.csv', fields)

    def run(data: TwoTowerData, stage: str, method: str, seed: int, lr: float) -> dict:
        settings = json.dumps(dict(lr=lr, batch_size=args.batch_size))
        facts = dict(stage=stage, method=method, seed=seed, step=args.steps, settings=settings)
        if row := record.find(**facts):
            return row
        seconds, found = measure(data, method, seed, args, lr)
        found = {k: f'{v:.6f}' for k, v in found.items()}
        record.add([dict(facts, seconds=f'{seconds:.1f}', **found)])
        row = record.rows[-1]
        print(stage, method, seed, lr, row['P@5'], f'{seconds:.0f} s', flush=True)
        return row

    first = next(iter(METRICS))
    with tempfile.TemporaryDirectory() as folder:
        source = next(args.data.glob('train.csv*'))
        split_file(source, Path(folder) / 'split', seed=args.tune_seed)
        part, data = read_data(Path(folder) / 'split'), read_data(args.data)
    for method in args.methods:
        tuned = {lr: run(part, 'tune', method, args.tune_seed, lr) for lr in args.learning_rates}
        best = max(tuned, key=lambda lr: float(tuned[lr][first]))
        for seed in args.seeds:
            run(data, 'final', method, seed, best)


if __name__ == '__main__':
    sys.exit(main())
