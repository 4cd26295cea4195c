"""The pictures of a COCO benchmark."""

import os
from collections.abc import Sequence
from pathlib import Path

from research.coco.benchmark import CocoBenchmark
from research.coco.pictures.metric_bars import plot_metric_bars
from research.coco.pictures.pr_pages import most_differing_classes, plot_pr_pages


def draw_benchmark(
    benchmark: CocoBenchmark,
    folder: str | os.PathLike,
    classes: Sequence[str] | None = None,
    max_classes: int = 9,
) -> list[Path]:
    """Draw ``metrics.png`` and ``pr_curves.png`` with its further pages.

    Pictures of an earlier call are removed: with fewer pages, or without a side by side, they would
    belong to another table.

    Args:
        benchmark: The figures.
        folder: Where to write; made if needed.
        classes: Classes to draw curves of; ``['all']`` for all, None for
            those on which the models differ most.
        max_classes: Number of classes where ``classes`` is None.

    Returns:
        The files.

    Raises:
        ValueError: If there is no such class.
    """
    folder = Path(folder)
    curves = benchmark.curves
    if classes is None:
        classes = most_differing_classes(curves, max_classes)
    elif list(classes) == ['all']:
        total = len(benchmark.rows[0].classes)
        classes = most_differing_classes(curves, total)
    for pattern in ('pr_curves*.png', 'side_by_side.jpg'):
        for old in folder.glob(pattern):
            old.unlink()
    return [
        plot_metric_bars(benchmark.rows, folder / 'metrics.png'),
        *plot_pr_pages(curves, folder, classes),
    ]
