"""What a check of a COCO file found, and how it is told to the user."""

from dataclasses import dataclass, field

# COCO's limits between small, medium and large objects, in square pixels.
SMALL_AREA = 32**2
LARGE_AREA = 96**2


class AnnotationError(ValueError):
    """An annotation file, or a config that uses it, cannot be trained on.

    The message names the field, the value and the fix.
    """


@dataclass
class Problem:
    """All findings of one kind.

    Attributes:
        kind: What is wrong, as a noun phrase; also the grouping key.
        fix: What the user should do, one sentence.
        is_error: Whether training must not start; otherwise a warning.
        count: How often it was found.
        examples: The first few findings, each naming field and value.
    """

    kind: str
    fix: str
    is_error: bool = True
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Kind, count, first findings and fix on indented lines."""
        lines = [f'{self.kind} ({self.count} found):']
        lines += [f'    {example}' for example in self.examples]
        if self.count > len(self.examples):
            lines.append(f'    ... and {self.count - len(self.examples)} more')
        lines.append(f'    Fix: {self.fix}')
        return '\n'.join(lines)


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
class CocoReport:
    """Contents and problems of one annotation file.

    Attributes:
        ann_file: The file checked.
        num_images: Entries of ``images``.
        num_annotations: Entries of ``annotations``.
        num_empty_images: Images that no annotation refers to.
        counts: Objects per class name, in the file's category order. Only
            annotations without an error are counted.
        problems: Findings grouped by kind, errors and warnings.
        bad_annotations: Positions in ``annotations`` with an error.
    """

    ann_file: str
    num_images: int = 0
    num_annotations: int = 0
    num_empty_images: int = 0
    counts: dict[str, ClassCount] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    bad_annotations: set[int] = field(default_factory=set)

    @property
    def errors(self) -> list[Problem]:
        """Problems that must be mended before training."""
        return [p for p in self.problems if p.is_error]

    @property
    def warnings(self) -> list[Problem]:
        """Problems that mmdet survives, perhaps by dropping data."""
        return [p for p in self.problems if not p.is_error]

    @property
    def ok(self) -> bool:
        """Whether the file has no error."""
        return not self.errors

    def describe(self, problems: list[Problem]) -> str:
        """One text that names the file and all ``problems``."""
        parts = [f'annotation file {self.ann_file}:']
        parts += [f'  {i}. {p}' for i, p in enumerate(problems, start=1)]
        return '\n'.join(parts)

    def raise_if_bad(self) -> None:
        """Raise when the file has an error.

        Raises:
            AnnotationError: With all errors in one message.
        """
        if not self.ok:
            raise AnnotationError(
                self.describe(self.errors)
                + '\nAll findings as a table, and a cleaned copy: python '
                'tools/dataset_converters/check_coco.py '
                f'{self.ann_file} --fix CLEANED.json'
            )
