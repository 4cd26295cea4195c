"""Comparison of the annotation files of one config: labels, images and objects."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from mmrank.annotations.findings import Problem
from mmrank.annotations.report import CocoReport
from mmrank.errors import UserError

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

    def paths(self) -> set[str]:
        """Files of the images."""
        folder = os.path.normpath(self.image_dir)
        return {os.path.join(folder, name) for name, *_ in self.report.images.values()}


def compare_labels(splits: Sequence[Split]) -> None:
    """Refuse files whose classes get other labels than in the first: mAP would be of others."""
    for other in splits[1:]:
        first = splits[0]
        for label, (one, two) in enumerate(zip_longest(first.labels(), other.labels())):
            # A split that is evaluated may lack the last classes, if its metainfo says so.
            is_left_out = two is None and other.classes is not None and not other.is_trained
            if one != two and not is_left_out:
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
        trained = train.paths()
        for other in (x for x in splits if not x.is_trained):
            shared = trained & other.paths()
            if shared and other.report.ann_file not in found:
                found[other.report.ann_file] = other
                text = (
                    f'{len(shared)} of {len(other.report.images)} images, such as {min(shared)}, '
                    f'are in {train.where} and in {other.where}'
                )
                problem = Problem('images in two splits', _SHARED_FIX, False, 1, [text])
                other.report.problems.append(problem)
    return [*found.values()]


def difference(evaluated: CocoReport, parts: Sequence[CocoReport]) -> str | None:
    """What the file of an evaluator and those of its data sets do not have in common."""
    images = {}
    for report in parts:
        for image_id in images.keys() & report.images.keys():
            return (
                f'image id {image_id!r} is in several data sets, which are evaluated as one '
                '(a MultiDatasetsEvaluator takes each alone)'
            )
        images |= report.images
    for image_id in {**images, **evaluated.images}:
        one = _entry(images, image_id)
        two = _entry(evaluated.images, image_id)
        if one != two:
            return f'image id {image_id!r} is {two} in it and {one} in the data set'
    objects = Counter(chain(*map(_objects, parts)))
    others = Counter(_objects(evaluated))
    if not objects or not others or objects == others:
        return None
    totals = others.total(), objects.total()
    return '{} objects in it, {} in the data set, or other boxes'.format(*totals)


def _entry(images: dict, image_id: object) -> tuple | str:
    """File name without folders, width and height of an image."""
    if image_id not in images:
        return 'absent'
    name, *size = images[image_id]
    return os.path.basename(name), *size


def _objects(report: CocoReport) -> Iterator[tuple]:
    """Image id, label and box of each object."""
    ids = [*report.images]
    columns = report.columns
    boxes = columns.box.round(2).tolist()
    for image, label, box in zip(columns.image.tolist(), columns.label.tolist(), boxes):
        yield ids[image], label, *box
