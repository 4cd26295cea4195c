r"""The losses of two towers on MovieLens-1M, tuned alike.

    python tools/research/two_towers.py tools/research/two_towers.yaml tools/research/records

The plan is one of ``tools/research/training_plan.py``; its ``data`` is a folder with
``train.csv.gz`` and ``test.csv.gz``. A trial is trained on nine tenths of the training pairs and
measured on the rest; the others are trained on all of them, and measured once on the test pairs:
all items of each user, training pairs left out. Methods: ``loss``, ``lr`` and ``uniform``
candidates; for all ``steps`` and ``batch_size``. results.py makes the table.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from mmengine.config import Config

from in_batch.training import StepwiseTraining, TwoTowerData
from mmrank.apis.common.command_line import tool_parser
from mmrank.apis.common.records import FACTS, FINAL, TUNE
from mmrank.datasets.interactions.splitting import split_file
from mmrank.errors import show_user_errors
from training_plan import Record, TrainingPlan

CONFIG = Path(__file__).resolve().parents[2] / (
    'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'
)
METRICS = {'P@5': 'top_k/precision@5', 'R@25': 'top_k/recall@25', 'NDCG@25': 'top_k/ndcg@25'}


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


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('plan', type=Path)
    parser.add_argument('out', type=Path, help='folder of the record')
    args = parser.parse_args()
    torch.set_num_threads(1)
    plan = TrainingPlan(args.plan)
    ((name, folder),) = plan.data.items()
    batch_size = plan.fields['batch_size']
    steps = plan.fields['steps']
    record = Record(args.out / f'{name}.csv', [*(x for x in FACTS if x != 'hash'), *METRICS])
    with tempfile.TemporaryDirectory() as temp:
        source = next(Path(folder).glob('train.csv*'))
        split_file(source, Path(temp) / 'split', seed=plan.tune_seeds[0])
        data = {TUNE: read_data(Path(temp) / 'split'), FINAL: read_data(Path(folder))}
    for facts, method in plan.missing(name, record, next(iter(METRICS))):
        start = time.process_time()
        training = StepwiseTraining(
            data[facts['stage']],
            method['loss'],
            batch_size,
            method['lr'],
            facts['seed'],
            num_uniform=method.get('uniform', 0),
        )
        training.train(steps)
        found = training.evaluate()
        row = dict(
            facts,
            step=steps,
            seconds=f'{time.process_time() - start:.1f}',
            **{key: f'{found[metric] / 100:.6f}' for key, metric in METRICS.items()},
        )
        record.add([row])
        print(*facts.values(), row['P@5'], flush=True)


if __name__ == '__main__':
    sys.exit(main())
