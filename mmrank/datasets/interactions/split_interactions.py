"""Hold a part of each user's interactions out."""

from pathlib import Path

import numpy as np

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.read_csv import open_text, read_csv


def choose_held_out(
    pairs: Interactions, share: float, seed: int
) -> np.ndarray:
    """Choose pairs at random so that every entity keeps one for training.

    Args:
        pairs: All positive pairs.
        share: Of each left entity's pairs, rounded down.
        seed: Of the choice.

    Returns:
        (P,) bool.

    Raises:
        ValueError: If ``share`` is not in (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f'share must be in (0, 1), got {share}')
    keys = np.random.default_rng(seed).random(len(pairs))
    order = np.lexsort((keys, pairs.rows))
    starts = pairs.row_starts()
    place = np.arange(len(pairs)) - starts[pairs.rows]
    wanted = (share * np.diff(starts)).astype(int)
    held_out = np.zeros(len(pairs), dtype=bool)
    held_out[order] = place < wanted[pairs.rows]
    # An item without a training pair could never be learnt.
    order = np.lexsort((keys, held_out, pairs.cols))
    _, first = np.unique(pairs.cols[order], return_index=True)
    held_out[order[first]] = False
    return held_out


def split_file(
    path: str | Path,
    out_dir: str | Path,
    share: float = 0.1,
    min_rating: float | None = None,
    separator: str = ',',
    seed: int = 0,
) -> tuple[Path, Path]:
    """Write the lines of a file to a training and a test file.

    Lines stay as they are; those below ``min_rating`` are in neither.

    Args:
        path: File as :func:`.read_csv.read_csv` reads it.
        out_dir: Folder to write to, made if needed.
        share: See :func:`choose_held_out`.
        min_rating: See :func:`.read_csv.read_csv`.
        separator: See there.
        seed: Of the choice.

    Returns:
        ``train`` and ``test`` with the suffix of ``path``, without ``.gz``.

    Raises:
        ValueError: See :func:`choose_held_out` and ``read_csv``.
    """
    pairs = read_csv(path, min_rating, separator)
    held_out = choose_held_out(pairs, share, seed)
    names = pairs.row_names, pairs.col_names
    is_test = {
        (names[0][i], names[1][j]): out
        for i, j, out in zip(pairs.rows, pairs.cols, held_out.tolist())
    }
    suffix = Path(str(path).removesuffix('.gz')).suffix or '.csv'
    files = [Path(out_dir) / f'{x}{suffix}' for x in ('train', 'test')]
    files[0].parent.mkdir(parents=True, exist_ok=True)
    with (
        open_text(path) as lines,
        files[0].open('w', encoding='utf-8') as train,
        files[1].open('w', encoding='utf-8') as test,
    ):
        for number, line in enumerate(lines):
            line = line.rstrip('\r\n')
            fields = line.split(separator)
            out = is_test.get(tuple(fields[:2]))
            if out is not None:
                (test if out else train).write(line + '\n')
            elif number == 0 and not _is_rating(fields):
                train.write(line + '\n')
                test.write(line + '\n')
    return files[0], files[1]


def _is_rating(fields: list[str]) -> bool:
    """Whether the third field is a number: no header, but a low rating."""
    try:
        float(fields[2])
    except (IndexError, ValueError):
        return False
    return True
