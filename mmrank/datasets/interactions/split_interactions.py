"""Hold a part of each user's interactions out."""

from pathlib import Path

import numpy as np

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.read_csv import (
    check_options,
    header_columns,
    read_csv,
    split_fields,
)
from mmrank.datasets.interactions.text_lines import text_lines
from mmrank.files import whole_folder


def choose_held_out(pairs: Interactions, share: float, seed: int) -> np.ndarray:
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
    check_share(share, seed)
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


def check_share(share: float, seed: int) -> None:
    """Refuse a share or a seed that makes no sense.

    Args:
        share: See :func:`choose_held_out`.
        seed: See there.

    Raises:
        ValueError: If one makes no sense.
    """
    if not 0 < share < 1:
        raise ValueError(f'share must be in (0, 1), got {share}')
    if seed < 0:
        raise ValueError(f'seed must be at least 0, got {seed}')


def split_file(
    path: str | Path,
    out_dir: str | Path,
    share: float = 0.1,
    min_rating: float | None = None,
    separator: str = ',',
    seed: int = 0,
) -> tuple[Path, Path]:
    """Write the lines of a file to a training and a test file.

    Lines stay as they are; those below ``min_rating`` are in neither. Options are checked before
    the file is read, and the files are written whole or not at all.

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
        ValueError: See :func:`choose_held_out` and ``read_csv``; also if an entry goes over several
            lines.
    """
    check_share(share, seed)
    check_options(min_rating, separator)
    pairs = read_csv(path, min_rating, separator)
    held_out = choose_held_out(pairs, share, seed)
    names = pairs.row_names, pairs.col_names
    is_test = {
        (names[0][i], names[1][j]): out
        for i, j, out in zip(pairs.rows, pairs.cols, held_out.tolist())
    }
    suffix = Path(str(path).removesuffix('.gz')).suffix or '.csv'
    names = [f'{x}{suffix}' for x in ('train', 'test')]
    with whole_folder(out_dir) as folder:
        written = _write_lines(
            [folder / name for name in names], path, is_test, min_rating, separator
        )
        if written != len(pairs):
            raise ValueError(
                f'{path} has {len(pairs)} entries, but {written} of them in a '
                'line of their own. Fix: remove line breaks within quotes'
            )
    return tuple(Path(out_dir) / name for name in names)


def _write_lines(
    paths: list[Path],
    source: str | Path,
    is_test: dict[tuple[str, str], bool],
    min_rating: float | None,
    separator: str,
) -> int:
    """Write the lines and a header; returns how many pairs were written."""
    columns = ['user', 'item', 'rating']
    written = 0
    with (
        paths[0].open('w', encoding='utf-8') as train,
        paths[1].open('w', encoding='utf-8') as test,
    ):
        for number, line in enumerate(text_lines(source)):
            line = line.rstrip('\r\n')
            if not line.strip():
                continue
            fields = next(split_fields([line], separator))
            header = header_columns(fields) if number == 0 else None
            if header:
                columns = header
                train.write(line + '\n')
                test.write(line + '\n')
                continue
            values = dict(zip(columns, map(str.strip, fields)))
            out = is_test.get((values.get('user'), values.get('item')))
            if out is None or (min_rating is not None and float(values['rating']) < min_rating):
                continue
            (test if out else train).write(line + '\n')
            written += 1
    return written
