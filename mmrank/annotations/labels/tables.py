"""Tables with a row an object."""

import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path

from mmrank.annotations.labels.pictures import (
    SLACK,
    Faults,
    Label,
    Picture,
    Pictures,
    compare_size,
    is_numeric,
    number_in,
)
from mmrank.annotations.text_tables import read_rows
from mmrank.errors import UserError

CORNERS = ('x1', 'y1', 'x2', 'y2')
SIZED = ('x', 'y', 'width', 'height')
#: Columns of a CSV file by other usual names, in small letters.
ALIASES = {
    alias: key
    for key, aliases in {
        'image': 'filename file_name image_name image_path imageid path',
        'class': 'label class_name category labelname label_name name',
        'x1': 'xmin x_min left',
        'y1': 'ymin y_min top',
        'x2': 'xmax x_max right',
        'y2': 'ymax y_max bottom',
        'x': 'bbox_x',
        'y': 'bbox_y',
        'width': 'w bbox_w bbox_width',
        'height': 'h bbox_h bbox_height',
    }.items()
    for alias in aliases.split()
}


def read_csv(
    source: Path, pictures: Pictures, classes: list[str], faults: Faults
) -> Iterator[tuple[Picture, list[Label]]]:
    """Labels of a table; a row of an image alone is an image without an object."""
    rows = [*read_rows(source)]
    names = ['image', *CORNERS, 'class']
    first = rows[0][1] if rows else names
    # An image without objects has no numbers.
    if len(first) != 6 or not all(not x or is_numeric(x) for x in first[1:5]):
        names = [x.lower() for x in first]
        rows = rows[1:]
    keys = [ALIASES.get(x, x) for x in names]
    box = SIZED if 'x' in keys and 'x2' not in keys else CORNERS
    lacking = [x for x in ('image', 'class', *box) if x not in keys]
    if lacking or not rows:
        what = f'{source} has the columns {", ".join(names)[:200]} and {len(rows)} rows'
        fix = 'image, class, xmin, ymin, xmax, ymax, or x, y, width, height, with commas between'
        raise UserError(what, fix)
    values = []
    for where, row in rows:
        cells = dict([*zip(keys, row)][::-1])  # the first of two columns of one meaning
        values += faults.of(_csv_row, cells, where, box)
    numbers = [x for _, _, corners in values for x in corners]
    in_fractions = bool(numbers) and max(numbers) <= 1 + SLACK
    for cells, where, corners in values:
        yield from faults.of(_csv_label, cells, where, corners, pictures, in_fractions)


def _csv_row(cells: dict, where: str, box: Sequence[str]) -> tuple[dict, str, list[float]]:
    if not any(cells.get(x) for x in ('class', *box)):
        return cells, where, []
    corners = [number_in(cells.get(x, ''), where) for x in box]
    if not cells.get('class'):
        raise UserError(f'{where} has a box and no class. Fix: its class')
    if box is SIZED:
        corners[2:] = [corners[0] + corners[2], corners[1] + corners[3]]
    return cells, where, corners


def _csv_label(
    cells: dict, where: str, corners: list[float], pictures: Pictures, in_fractions: bool
) -> tuple[Picture, list[Label]]:
    picture = pictures.find(cells['image'], where, posixpath.normpath(cells['image']))
    if 'x1' in cells and 'height' in cells:
        compare_size(picture, (cells.get('width', ''), cells['height']), where)
    if in_fractions:
        scale = picture.width, picture.height
        corners = [x * scale[i % 2] for i, x in enumerate(corners)]
    label = Label(where, cells['class'], corners, (), cells.get('isgroupof') == '1')
    return picture, [label] if corners else []
