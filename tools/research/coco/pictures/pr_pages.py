"""Precision-recall curves of many classes, on pages."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from research.coco.pictures.pr_curves import PRCurves, check_same_classes, plot_pr_curves

# With the three means a page has five rows.
_PER_PAGE = 12


def most_differing_classes(models: Mapping[str, PRCurves], count: int) -> list[str]:
    """Choose the classes on which models differ most surely in AP50.

    The range of AP50 over the models counts times the square root of the number of objects: chance
    moves the AP of a class by about one over that root, so a class with one object, on which models
    have all or nothing,
    does not come before a well-measured one.

    Args:
        models: Curves by model name; all of the same classes.
        count: Classes at most.

    Returns:
        Class names, surest difference first; among equal ones, and with a single model, most
        frequent first. Classes without objects are left out.
    """
    first = check_same_classes(models)
    keys = []
    for index, name in enumerate(first.classes):
        if not first.num_objects[index]:
            continue
        ap = [curves.average_precision(0.5, name) for curves in models.values()]
        weight = first.num_objects[index] ** 0.5
        spread = round(float(np.ptp(ap)) * weight, 9)
        # A class may consist of ignored objects.
        if not np.isnan(spread):
            keys.append((-spread, -first.num_objects[index], name))
    return [name for _, _, name in sorted(keys)[:count]]


def plot_pr_pages(
    models: Mapping[str, PRCurves], folder: str | os.PathLike, classes: Sequence[str]
) -> list[Path]:
    """Draw the means and a panel a class, twelve classes a page.

    Args:
        models: Curves by model name; all of the same classes.
        folder: Where to write ``pr_curves.png``, ``pr_curves_2.png``, ...
        classes: Classes to show, in this order; none shows the means alone.

    Returns:
        The files.

    Raises:
        ValueError: As
            :func:`~research.coco.pictures.pr_curves.plot_pr_curves`.
    """
    paths = []
    for start in range(0, max(1, len(classes)), _PER_PAGE):
        number = start // _PER_PAGE + 1
        name = f'pr_curves_{number}.png' if start else 'pr_curves.png'
        paths.append(
            plot_pr_curves(
                models,
                Path(folder) / name,
                classes=classes[start : start + _PER_PAGE],
                with_mean=not start,
            )
        )
    return paths
