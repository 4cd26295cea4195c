"""Comparison of the annotation files of one config: labels, images and objects."""

import os
from collections.abc import Container, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from mmrank.datasets.checks.coco_report import CocoReport
from mmrank.datasets.checks.data_report import Problem
from mmrank.errors import UserError

#: Sums of boxes that differ by less are the same numbers, added in another order.
_ROUNDING = 0.01
_SHARED_FIX = (
    'put every image into one split; AP on images that were trained on tells how well the model '
    'remembers.'
)


class Split(NamedTuple):
    """An annotation file and how a config uses it."""

    where: str  # its place in the config, like train_dataloader.dataset
    image_dir: str
    classes: tuple[str, ...] | None  # those that are trained on, None: all of the file
    report: CocoReport
    is_trained: bool

    def labels(self) -> list[str]:
        """Class names by label: mmdet numbers them in the order of the file."""
        names = self.report.names.values()
        return [x for x in names if self.classes is None or x in self.classes]

    def file_names(self) -> set[str]:
        """File names of the images, without folders."""
        return {os.path.basename(name) for name, *_ in self.report.images.values()}

    def paths(self, file_names: Container[str]) -> set[str]:
        """Files of the images with one of these names."""
        names = (name for name, *_ in self.report.images.values())
        return {
            os.path.normpath(os.path.join(self.image_dir, name))
            for name in names
            if os.path.basename(name) in file_names
        }


def compare_labels(splits: Sequence[Split]) -> None:
    """Refuse files whose classes get other labels than in the first: mAP would be of others."""
    first, *others = splits or (None,)
    for other in others:
        pairs = enumerate(zip_longest(first.labels(), other.labels()))
        for label, (one, two) in pairs:
            if one != two:
                raise UserError(
                    f'the annotation files number the classes differently: label {label} is '
                    f'{one!r} in {first.where} ({first.report.ann_file}) and {two!r} in '
                    f'{other.where} ({other.report.ann_file}). Fix: list the same categories in '
                    "the same order in both files; mmdet numbers labels by the file's order, not "
                    'by metainfo'
                )


def find_shared_images(splits: Sequence[Split]) -> list[Split]:
    """Add a warning to each other file with images that are trained on; return these splits."""
    found = {}
    for train in (x for x in splits if x.is_trained):
        for other in (x for x in splits if not x.is_trained):
            names = train.file_names() & other.file_names()
            shared = train.paths(names) & other.paths(names) if names else ()
            if shared and other.report.ann_file not in found:
                found[other.report.ann_file] = other
                text = (
                    f'{len(shared)} of {len(other.report.images)} images, such as {min(shared)}, '
                    f'are in {train.where} and in {other.where}'
                )
                problem = Problem('images in two splits', _SHARED_FIX, False, 1)
                problem.examples.append(text)
                other.report.problems.append(problem)
    return [*found.values()]


def join(reports: Sequence[CocoReport]) -> CocoReport:
    """What joined data sets have; a ``UserError`` where two images have one id."""
    joined = CocoReport(' and '.join(x.ann_file for x in reports))
    for report in reports:
        for image_id in joined.images.keys() & report.images.keys():
            raise UserError(
                f'image id {image_id!r} is in several of {joined.ann_file}, which are evaluated as '
                "one: their results would be mixed. Fix: other ids, by check_coco.py's --merge, or "
                'a MultiDatasetsEvaluator'
            )
        joined.images.update(report.images)
    joined.num_annotations = sum(x.num_annotations for x in reports)
    joined.objects = np.concatenate([x.objects for x in reports])
    return joined


def difference(one: CocoReport, other: CocoReport) -> str | None:
    """What two files do not have in common that should be of the same images and objects."""
    for image_id in {**one.images, **other.images}:
        first = _entry(one, image_id)
        second = _entry(other, image_id)
        if first != second:
            return (
                f'image id {image_id!r} is {first} in {one.ann_file} and {second} in '
                f'{other.ann_file}'
            )
    if one.num_annotations and other.num_annotations:
        place = {image_id: i for i, image_id in enumerate(other.images)}
        gaps = np.abs(one.objects - other.objects[[place[x] for x in one.images]])
        if gaps.max(initial=0) > _ROUNDING:
            bad = gaps.max(1).argmax()
            image_id = [*one.images][bad]
            counts = one.objects[bad, 0], other.objects[place[image_id], 0]
            return (
                f'image id {image_id!r} has {counts[0]:.0f} objects in one and {counts[1]:.0f} in '
                'the other, of other boxes or classes'
            )
    return None


def _entry(report: CocoReport, image_id: object) -> tuple | str:
    """File name without folders, width and height of an image."""
    if image_id not in report.images:
        return 'absent'
    name, *size = report.images[image_id]
    return os.path.basename(name), *size
