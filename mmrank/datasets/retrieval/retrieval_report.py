"""What a check of a retrieval data set found."""

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from mmrank.datasets.coco_report import AnnotationError, Problem


@dataclass
class RetrievalReport:
    """Contents and problems of one split.

    Attributes:
        where: Its place in the config, or its folder.
        source: The list or folder that was read.
        counts: Images of every class, in the order of the labels.
        paths: Path of every image, as it would be opened.
        problems: Findings grouped by kind, errors and warnings.
    """

    where: str
    source: str = ''
    counts: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """Problems that must be mended before training."""
        return [p for p in self.problems if p.is_error]

    @property
    def warnings(self) -> list[Problem]:
        """Problems that a training survives."""
        return [p for p in self.problems if not p.is_error]

    def summary(self) -> dict[str, float]:
        """Classes, images and the spread of images a class."""
        sizes = sorted(self.counts.values())
        return {
            'classes': len(sizes),
            'images': sum(sizes),
            'min': sizes[0] if sizes else 0,
            'median': median(sizes) if sizes else 0,
            'mean': sum(sizes) / len(sizes) if sizes else 0,
            'max': sizes[-1] if sizes else 0,
            'single_image_classes': sizes.count(1),
        }

    def histogram(self) -> dict[int, int]:
        """How many classes have a number of images, by that number."""
        return dict(sorted(Counter(self.counts.values()).items()))

    def describe(self, problems: list[Problem]) -> str:
        """One text that names the split and all ``problems``."""
        head = f'{self.where} ({self.source}):' if self.source else self.where
        parts = [f'  {i}. {p}' for i, p in enumerate(problems, start=1)]
        return '\n'.join([head, *parts])

    def raise_if_bad(self) -> None:
        """Raise when there is an error.

        Raises:
            AnnotationError: With all errors in one message.
        """
        if self.errors:
            raise AnnotationError(self.describe(self.errors))

    def to_dict(self) -> dict:
        """All of it but the paths, for JSON."""
        return {
            'where': self.where,
            'source': self.source,
            'summary': self.summary(),
            'histogram': self.histogram(),
            'counts': self.counts,
            'problems': [
                {
                    'kind': p.kind,
                    'is_error': p.is_error,
                    'count': p.count,
                    'examples': p.examples,
                    'fix': p.fix,
                }
                for p in self.problems
            ],
        }
