"""Labels of other tools: YOLO's text files, VOC's XML files and tables, with their pictures."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from mmrank.annotations.labels.classes import read_classes
from mmrank.annotations.labels.pictures import Faults, Label, Picture, Pictures
from mmrank.annotations.labels.tables import read_csv
from mmrank.annotations.labels.voc import read_voc
from mmrank.annotations.labels.yolo import read_yolo

__all__ = ['READERS', 'Faults', 'Pictures', 'read_classes']

#: Reads a source: each picture with its labels; a picture may come several times.
Reader = Callable[[Path, Pictures, list[str], Faults], Iterator[tuple[Picture, list[Label]]]]

READERS: dict[str, Reader] = {
    'yolo': read_yolo,
    'yolo-seg': partial(read_yolo, polygons=True),
    'voc': read_voc,
    'csv': read_csv,
}
