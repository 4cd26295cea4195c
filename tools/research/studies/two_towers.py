"""The losses of two towers, tuned alike.

``data`` is a folder with ``train.csv.gz`` and ``test.csv.gz``. A trial is trained on nine tenths of
the training pairs and measured on the rest; the others are trained on all of them, and measured
once on the test pairs: all items of each user, training pairs left out. Methods: ``loss``, ``lr``
and ``uniform`` candidates; for all ``steps`` and ``batch_size``.
"""

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import Runner
from mmengine.visualization import Visualizer
from torch import nn

from mmrank.datasets.interactions.pair_files import split_file
from mmrank.experiments.records import FINAL, TUNE
from mmrank.registry import DATASETS, METRICS
from plans.reader import Plan

CONFIG = Path(__file__).resolve().parents[3] / (
    'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'
)
FIGURES = {'P@5': 'top_k/precision@5', 'R@25': 'top_k/recall@25', 'NDCG@25': 'top_k/ndcg@25'}
DEFAULT_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger')
DEFAULT_HOOKS += ('param_scheduler', 'checkpoint')


class TwoTowerData:
    """Training pairs, held-out pairs and metric, read once."""

    def __init__(self, folder: Path) -> None:
        self.cfg = Config.fromfile(CONFIG)
        for loader, split in (('train_dataloader', 'train'), ('val_dataloader', 'test')):
            dataset = self.cfg[loader].dataset
            dataset.data_root = str(folder)
            dataset.ann_file = next(folder.glob(f'{split}.csv*')).name
        dataset.train_ann_file = self.cfg.train_dataloader.dataset.ann_file
        self.train = DATASETS.build(self.cfg.train_dataloader.dataset)
        held_out = DATASETS.build(dataset)
        self._test = held_out.__getitems__(range(len(held_out)))
        self._metric = METRICS.build(self.cfg.val_evaluator)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics of a two-tower model on the held-out pairs."""
        model.eval()
        results = model(mode='predict', **model.data_preprocessor(self._test))
        self._metric.results.clear()
        self._metric.process(self._test, results)
        return self._metric.evaluate(len(results))


def prepare(plan: Plan) -> dict[str, TwoTowerData]:
    """The pairs of each stage."""
    folder = Path(plan.fields['data'])
    with tempfile.TemporaryDirectory() as temp:
        split_file(next(folder.glob('train.csv*')), Path(temp) / 'split', seed=plan.tune_seeds[0])
        return {TUNE: TwoTowerData(Path(temp) / 'split'), FINAL: TwoTowerData(folder)}


def train(
    facts: dict, settings: dict, data: dict[str, TwoTowerData]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train the model of the config with its sampler and optimiser; its last step and figures."""
    pairs = data[facts['stage']]
    cfg = copy.deepcopy(pairs.cfg)
    cfg.model['loss'] = settings['loss']
    cfg.optim_wrapper.optimizer['lr'] = settings['lr']
    seed = facts['seed']
    size = settings['batch_size']
    uniform = settings.get('uniform', 0)
    is_sogram = settings['loss'].get('mode') == 'sogram'
    dataset = copy.copy(pairs.train)
    dataset.sampling = 'sogram' if is_sogram else 'in_batch'
    sampler = dict(cfg.train_dataloader.sampler, infinite=True, seed=seed, num_uniform=uniform)
    with tempfile.TemporaryDirectory() as folder:
        runner = _QuietRunner(
            model=cfg.model,
            work_dir=folder,
            train_dataloader=dict(
                cfg.train_dataloader,
                # Sogram draws other pairs for the negatives, as many.
                batch_size=size * (2 if is_sogram else 1) + uniform,
                sampler=dict(sampler, batch_size=size),
                dataset=dataset,
            ),
            train_cfg=dict(type='IterBasedTrainLoop', max_iters=settings['steps']),
            optim_wrapper=cfg.optim_wrapper,
            default_hooks=dict.fromkeys(DEFAULT_HOOKS),
            custom_hooks=[dict(type='mmrank.PairCountsHook')],
            visualizer=Visualizer.get_instance('two_towers'),
            default_scope=cfg.default_scope,
            randomness=dict(seed=seed),
        )
        model = runner.train()
    found = pairs.evaluate(model)
    yield settings['steps'], {key: found[metric] / 100 for key, metric in FIGURES.items()}


class _QuietRunner(Runner):
    """A Runner that writes no file; hundreds of them share one logger, which mmengine keeps."""

    def build_logger(self, **kwargs) -> MMLogger:
        return MMLogger.get_instance('two_towers', log_level='ERROR')

    def build_message_hub(self, message_hub=None) -> MessageHub:
        return MessageHub.get_instance('two_towers')

    def dump_config(self) -> None:
        """Write nothing."""
