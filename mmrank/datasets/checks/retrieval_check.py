"""Checks of the retrieval data sets of a config."""

from collections.abc import Mapping, Sequence

from mmengine.logging import print_log

from mmrank.datasets.checks.data_report import config_datasets
from mmrank.datasets.checks.retrieval_inspect import RetrievalReport, compare_splits, inspect_split
from mmrank.datasets.registered import RETRIEVAL_DATASETS, retrieval_dataset_class
from mmrank.errors import UserError

SPLITS = ('train', 'val', 'test')


def inspect_config(
    cfg: Mapping, splits: Sequence[str] = SPLITS, **options
) -> list[RetrievalReport]:
    """Report on each retrieval data set of a config, and on what it shares with training.

    Goes through data set wrappers. Other data sets are passed over, and a config without any needs
    no mmpretrain. See :func:`inspect_split` for ``options``.
    """
    reports: list[RetrievalReport] = []
    trained: list[RetrievalReport] = []
    for split in splits:
        loader = cfg.get(f'{split}_dataloader') or {}
        where = f'{split}_dataloader.dataset'
        for place, settings in config_datasets(loader.get('dataset'), where):
            scope, _, name = str(settings.get('type')).rpartition('.')
            if scope not in ('mmrank', '') or name not in RETRIEVAL_DATASETS:
                continue
            settings = {k: v for k, v in settings.items() if k != 'type'}
            settings.update(lazy_init=True, pipeline=[])
            try:
                dataset = retrieval_dataset_class(name)(**settings)
            except (TypeError, ValueError) as error:
                raise UserError(f'{place}: {error}') from error
            report = inspect_split(dataset, place, **options)
            for other in trained:
                compare_splits(other, report)
            reports.append(report)
        if split == 'train':
            trained = list(reports)
    return reports


def check_config(cfg: Mapping, splits: Sequence[str] = SPLITS) -> list[RetrievalReport]:
    """Check the retrieval data sets of a config before anything is built.

    Warnings go to the current logger. Where training is checked too, errors of the test split are
    warnings: only testing needs it. Returns one report per data set.
    """
    bad, reports = [], inspect_config(cfg, splits)
    for report in reports:
        is_spare = report.where.startswith('test') and 'train' in splits
        errors = [] if is_spare else report.errors
        rest = report.problems if is_spare else report.warnings
        if rest:
            print_log(report.describe(rest), logger='current', level=30)
        if errors:
            bad.append(report.describe(errors))
    if bad:
        raise UserError(
            '\n'.join(bad) + '\nAll findings as tables: python '
            'tools/dataset_converters/check_retrieval.py CONFIG'
        )
    return reports
