"""Checks of the retrieval data sets of a config."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmengine.config import Config
from mmengine.logging import print_log
from rich.progress import track

from mmrank.annotations.findings import DataReport, Findings, config_datasets
from mmrank.annotations.images import image_fault
from mmrank.datasets.registered import RETRIEVAL_DATASETS
from mmrank.errors import UserError
from mmrank.imports import optional_class

if TYPE_CHECKING:
    from mmrank.datasets.retrieval.retrieval_sets import RetrievalDataset

_SPLITS = ('train', 'val', 'test')
_FIXES = {
    'unusable': 'follow the message of the finding.',
    'class without image': 'remove the folder, or put its images there.',
    'class with a single image': (
        'add images or leave the class out: its image has no positive, so PKSampler skips it and a '
        'query of it is not counted.'
    ),
    'image of several classes': 'decide for one class; an image is a positive or a negative.',
    'image listed twice': 'remove the copy, which would be found as a positive of the image.',
    'image file missing': (
        'check data_root and data_prefix, that the images were unpacked whole, and that links lead '
        'to a file.'
    ),
    'image that cannot be decoded': 'fetch or convert it again, or remove it from the list.',
    'image that is trained on as well': (
        'give the splits different classes; what the figures tell otherwise is how well the model '
        'remembers.'
    ),
    'class that is trained on as well': (
        'fine where the folders number their classes each from the start; else give the splits '
        'different classes.'
    ),
}


@dataclass
class _RetrievalReport(DataReport):
    """Contents and problems of one split: images of every class, by label, and their paths."""

    where: str  # its place in the config
    source: str = ''  # the list or folder that was read
    counts: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        return f'{self.where} ({self.source}):' if self.source else self.where


def inspect_config(
    cfg: Mapping | Config, splits: Sequence[str] = _SPLITS, read_images: bool = False
) -> list[_RetrievalReport]:
    """Report on each retrieval data set of a config, and on what it shares with training.

    Goes through data set wrappers. Other data sets are passed over, and a config without any needs
    no mmpretrain. ``read_images`` decodes the images as well.
    """
    reports: list[_RetrievalReport] = []
    trained: list[_RetrievalReport] = []
    for split in splits:
        loader = cfg.get(f'{split}_dataloader') or {}
        for place, settings in config_datasets(
            loader.get('dataset'), f'{split}_dataloader.dataset'
        ):
            scope, _, name = str(settings.get('type')).rpartition('.')
            if scope not in ('mmrank', '') or name not in RETRIEVAL_DATASETS:
                continue
            settings = {k: v for k, v in settings.items() if k != 'type'}
            settings.update(lazy_init=True, pipeline=[])
            try:
                cls = optional_class('mmpretrain', name, RETRIEVAL_DATASETS[name])
                dataset = cls(**settings)
            except (TypeError, ValueError) as error:
                raise UserError(f'{place}: {error}') from error
            found = Findings(_FIXES)
            report = _RetrievalReport(place)
            _inspect(dataset, report, found)
            if read_images:
                for path in track(report.paths, 'Images', transient=True):
                    fault = image_fault(path) if os.path.isfile(path) else None
                    if fault:
                        found.add('image that cannot be decoded', f'{path}: {fault}')
            is_test = place.startswith('test')
            for train in trained:
                known = {os.path.normpath(path) for path in train.paths}
                shared = [path for path in report.paths if os.path.normpath(path) in known]
                for path in shared:
                    text = f'{path} is also in {train.where}'
                    found.add('image that is trained on as well', text, is_error=is_test)
                # Retrieval is measured on classes that are not trained on.
                if not shared:
                    for name in report.counts:
                        if name in train.counts:
                            text = f'class {name!r} is also in {train.where}'
                            found.add('class that is trained on as well', text, is_error=False)
            report.problems = [*found.by_kind.values()]
            reports.append(report)
        if split == 'train':
            trained = list(reports)
    return reports


def check_config(cfg: Mapping, splits: Sequence[str] = _SPLITS) -> list[_RetrievalReport]:
    """Warn of problems of the retrieval data sets of a config, and refuse errors.

    Where training is checked too, errors of the test split are warnings: only testing needs it.
    """
    bad = []
    reports = inspect_config(cfg, splits)
    for report in reports:
        is_spare = report.where.startswith('test') and 'train' in splits
        errors = [] if is_spare else report.errors
        rest = [x for x in report.problems if x not in errors]
        if rest:
            print_log(report.describe(rest), logger='current', level=30)
        if errors:
            bad.append(report.describe(errors))
    if bad:
        raise UserError('\n'.join(bad) + '\nAll findings as tables: mmrank check retrieval CONFIG')
    return reports


def _inspect(dataset: 'RetrievalDataset', report: _RetrievalReport, found: Findings) -> None:
    """Check the list and the files of one split, a data set built with ``lazy_init=True``."""
    try:
        listed = dataset.read_list(test=dataset.split == 'test')
        items = dataset.load_data_list()
    except (UserError, ValueError) as error:
        found.add('unusable', str(error))
        return
    names = dataset.metainfo['classes']
    counts = Counter(item['gt_label'] for item in items)
    report.source = listed.source
    report.counts = {name: counts[i] for i, name in enumerate(names)}
    report.paths = [item['img_path'] for item in items]
    for folder in listed.empty_folders:
        found.add('class without image', f'folder {folder} holds no image', is_error=False)
    for name, count in report.counts.items():
        if count == 1:
            found.add('class with a single image', f'class {name!r}', is_error=False)
    labels = defaultdict(list)
    for item in items:
        labels[os.path.normpath(item['img_path'])].append(item['gt_label'])
    for path, own in labels.items():
        if len(set(own)) > 1:
            classes = sorted({names[label] for label in own})
            found.add('image of several classes', f'{path} is of {classes}')
        elif len(own) > 1:
            found.add('image listed twice', f'{path}, {len(own)} times')
    for path in report.paths:
        if not os.path.isfile(path):
            found.add('image file missing', path)
