"""What a check of a retrieval data set found."""

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from mmrank.datasets.checks.data_report import DataReport


@dataclass
class RetrievalReport(DataReport):
    """Contents and problems of one split.

    Attributes:
        where: Its place in the config, or its folder.
        source: The list or folder that was read.
        counts: Images of every class, in the order of the labels.
        paths: Path of every image, as it would be opened.
    """

    where: str
    source: str = ''
    counts: dict[str, int] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """The split and what was read."""
        return f'{self.where} ({self.source}):' if self.source else self.where

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
