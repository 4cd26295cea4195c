"""The readers of labels of other tools, by the name of their form."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from mmrank.annotations.labels.pictures import Faults, Label, Picture, Pictures
from mmrank.annotations.labels.tables import read_csv
from mmrank.annotations.labels.voc import read_voc
from mmrank.annotations.labels.yolo import read_yolo

#: Reads a source: each picture with its labels; a picture may come several times.
Reader = Callable[[Path, Pictures, list[str], Faults], Iterator[tuple[Picture, list[Label]]]]

READERS: dict[str, Reader] = {
    'yolo': read_yolo,
    'yolo-seg': partial(read_yolo, polygons=True),
    'voc': read_voc,
    'csv': read_csv,
}
