"""What a check of a COCO file found."""

from dataclasses import dataclass, field

from mmrank.datasets.checks.data_report import DataReport
from mmrank.errors import UserError

# COCO's limits between small, medium and large objects, in square pixels.
SMALL_AREA = 32**2
LARGE_AREA = 96**2


@dataclass
class ClassCount:
    """Objects of one class by COCO size; crowds are counted apart."""

    small: int = 0
    medium: int = 0
    large: int = 0
    crowd: int = 0

    @property
    def total(self) -> int:
        """Objects of all sizes without crowds."""
        return self.small + self.medium + self.large

    def add(self, area: float, is_crowd: bool) -> None:
        """Count one object of ``area`` square pixels."""
        if is_crowd:
            self.crowd += 1
        elif area < SMALL_AREA:
            self.small += 1
        elif area < LARGE_AREA:
            self.medium += 1
        else:
            self.large += 1


@dataclass
class CocoReport(DataReport):
    """Contents and problems of one annotation file.

    Attributes:
        ann_file: The file checked.
        num_images: Entries of ``images``.
        num_annotations: Entries of ``annotations``.
        num_empty_images: Images that no annotation refers to.
        counts: Objects per class name, in the file's category order. Only annotations without an
            error are counted.
        bad_annotations: Positions in ``annotations`` with an error.
    """

    ann_file: str
    num_images: int = 0
    num_annotations: int = 0
    num_empty_images: int = 0
    counts: dict[str, ClassCount] = field(default_factory=dict)
    bad_annotations: set[int] = field(default_factory=set)

    @property
    def heading(self) -> str:
        """The file."""
        return f'annotation file {self.ann_file}:'

    def raise_if_bad(self) -> None:
        """Raise when the file has an error.

        Raises:
            UserError: With all errors in one message.
        """
        if not self.ok:
            raise UserError(
                self.describe(self.errors)
                + '\nAll findings as a table, and a cleaned copy: python '
                'tools/dataset_converters/check_coco.py '
                f'{self.ann_file} --fix CLEANED.json'
            )
