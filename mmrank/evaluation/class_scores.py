"""AP and AUROC of every class of a table of scores."""

import io
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from mmrank.functional import auroc, average_precision
from mmrank.visualization.tables import write_table

_HEADER = ('class', 'positives', 'negatives', 'AP', 'AUROC')


@dataclass(frozen=True)
class ClassFigures:
    """Figures in [0, 1] of C classes, NaN where a side is missing.

    Attributes:
        names: Names of the classes.
        positives: (C,) int64 numbers of positives.
        negatives: (C,) int64.
        ap: (C,) float64.
        auroc: (C,) float64.
        micro_ap: Of all scores of the whole classes in one ranking.
        micro_auroc: Likewise.
    """

    names: list[str]
    positives: Tensor
    negatives: Tensor
    ap: Tensor
    auroc: Tensor
    micro_ap: float
    micro_auroc: float

    @property
    def mean_ap(self) -> float:
        """Mean over the classes with both sides."""
        return float(self.ap.nanmean())

    @property
    def mean_auroc(self) -> float:
        """Mean over the classes with both sides."""
        return float(self.auroc.nanmean())

    def empty_classes(self) -> list[str]:
        """Names of the classes without a positive or without a negative."""
        whole = (self.positives > 0) & (self.negatives > 0)
        return [name for name, fits in zip(self.names, whole) if not fits]

    def rows(self) -> list[list]:
        """The table: a row for each class, figures in percent."""
        columns = (self.positives, self.negatives, 100 * self.ap, 100 * self.auroc)
        return [
            [name, *(x.item() for x in numbers)] for name, *numbers in zip(self.names, *columns)
        ]

    def means(self) -> list[list]:
        """Rows of the means, for the foot of the table."""
        totals = [int(self.positives.sum()), int(self.negatives.sum())]
        return [
            ['macro', *totals, 100 * self.mean_ap, 100 * self.mean_auroc],
            ['micro', *totals, 100 * self.micro_ap, 100 * self.micro_auroc],
        ]

    def console_table(self) -> str:
        """The table as text."""
        from rich.console import Console
        from rich.table import Table

        table = Table(*_HEADER)
        for column in table.columns[1:]:
            column.justify = 'right'
        for row in self.rows():
            table.add_row(*map(_text, row))
        table.add_section()
        for row in self.means() if len(self.names) > 1 else []:
            table.add_row(*map(_text, row))
        buffer = io.StringIO()
        Console(file=buffer, width=100).print(table)
        return buffer.getvalue()

    def write(self, stem: str | os.PathLike) -> None:
        """Write ``<stem>.md`` and ``<stem>.csv``.

        Args:
            stem: Path without suffix.
        """
        write_table(
            _HEADER,
            self.rows() + self.means(),
            stem,
            'AP and AUROC by class',
            'In percent; macro: mean over the classes, micro: all scores in one ranking.',
        )


def class_figures(scores: Tensor, is_positive: Tensor, names: list[str]) -> ClassFigures:
    """Rank the samples once for each class.

    Args:
        scores: (n, C) floats.
        is_positive: (n, C) bool.
        names: Names of the classes.

    Returns:
        The figures.

    Raises:
        ValueError: If a score is NaN.
    """
    if scores.isnan().any():
        row, column = scores.isnan().nonzero()[0].tolist()
        raise ValueError(
            f'the score of sample {row} for class {names[column]!r} is NaN; '
            'did the training diverge?'
        )
    # Ties of float32 scores stay ties.
    scores = scores.double()
    positives = is_positive.sum(0)
    negatives = len(is_positive) - positives
    whole = (positives > 0) & (negatives > 0)
    ap, area = scores.new_full((2, len(names)), torch.nan)
    for i in whole.nonzero().flatten().tolist():
        ap[i] = average_precision(scores[:, i], is_positive[:, i])
        area[i] = auroc(scores[:, i], is_positive[:, i])
    flat = scores[:, whole].flatten(), is_positive[:, whole].flatten()
    return ClassFigures(
        names, positives, negatives, ap, area, float(average_precision(*flat)), float(auroc(*flat))
    )


def _text(cell) -> str:
    return f'{cell:.2f}' if isinstance(cell, float) else str(cell)
