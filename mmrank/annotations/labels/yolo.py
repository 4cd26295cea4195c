"""YOLO's text files of boxes or polygons."""

from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize

from mmrank.annotations.labels.pictures import (
    SLACK,
    Faults,
    Label,
    Picture,
    Pictures,
    is_numeric,
    label_files,
    number_in,
    stem_of,
)
from mmrank.annotations.text_tables import read_lines
from mmrank.errors import UserError


def read_yolo(
    source: Path, pictures: Pictures, classes: list[str], faults: Faults, polygons: bool = False
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of .txt files, also in ``labels`` beside ``images``; without a file: no object."""
    if not classes:
        fix = '--classes data.yaml, or a text file with a name a line'
        raise UserError('labels of YOLO have numbers for classes', fix)
    files = label_files(source, '.txt', pictures)
    stems = {}
    own_files = {}
    for name in pictures.names:
        stem = normalize('NFC', stem_of(name))
        if stem not in files:
            head, folder, tail = f'/{stem}'.rpartition('/images/')
            stem = f'{head}/labels/{tail}'[1:] if folder else stem
        own_files[name] = files.get(stem)
        other = stems.setdefault(stem, name)
        if other != name and stem in files:
            fix = 'remove the image that was not labelled'
            raise UserError(f'{files[stem]} would be of {other} and of {name}', fix)
    for stem in sorted(files.keys() - stems.keys()):
        words = next((x.split() for x in read_lines(files[stem]) if x.strip()), [])
        if len(words) < 5 or not all(map(is_numeric, words)):
            print(f'Left out, since it has no labels: {files[stem]}')
            continue
        what = f'{files[stem]} has no image {stem}.jpg or .png in {pictures.folder}'
        faults.append(
            f'{what}{pictures.passed_over()}. Fix: the image, or its folder as --images of convert'
        )
    ends = set()
    for name in pictures.wanted:
        file = own_files[name]
        for picture in faults.of(pictures.open, name):
            labels = []
            for number, line in enumerate(read_lines(file) if file else (), start=1):
                if words := line.split():
                    args = words, f'{file}, line {number}', picture, classes, polygons
                    labels += faults.of(_yolo_label, *args)
                    if polygons and len(words) != 5:
                        ends.add(words[-1] in ('0', '1'))
            yield picture, labels
    if ends == {True}:
        faults.append(
            f'{source}: each polygon ends with 0 or 1, as the number of a track does. Fix: no '
            'confidence and track; a corner at the edge as 1.0'
        )


def _yolo_label(
    words: list[str], where: str, picture: Picture, classes: list[str], polygons: bool
) -> Label:
    kind, *shares = (number_in(x, where) for x in words)
    if not kind.is_integer() or not 0 <= kind < len(classes):
        what = f'{where}: class {words[0]} is none of 0 to {len(classes) - 1}'
        raise UserError(what, 'all names of classes, in the order of their numbers')
    is_polygon = polygons and len(shares) >= 6 and len(shares) % 2 == 0
    if len(shares) != 4 and not is_polygon:
        fix = 'class, x, y, width and height alone; for class and a polygon --from yolo-seg'
        raise UserError(f'{where} has {len(words)} numbers', fix)
    points = shares
    if not is_polygon:
        x, y, w, h = shares
        points = [x - w / 2, y - h / 2, x + w / 2, y + h / 2]
    wrong = next((x for x in points if not -SLACK <= x <= 1 + SLACK), None)
    if wrong is not None:
        what = f'{where} reaches to {wrong:g}, and YOLO has fractions of the sides, from 0 to 1'
        raise UserError(what, 'divide by width and height of the image, or correct the line')
    scale = picture.width, picture.height
    points = [min(max(x, 0), 1) * scale[i % 2] for i, x in enumerate(points)]
    if not is_polygon:
        return Label(where, classes[int(kind)], points)
    corners = [min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])]
    return Label(where, classes[int(kind)], corners, points)
