"""Hold a part of each user's lines out of a file."""

from pathlib import Path

import numpy as np

from mmrank.datasets.interactions.interactions import Interactions
from mmrank.datasets.interactions.read_csv import (
    check_options,
    header_columns,
    read_csv,
    split_fields,
    text_lines,
)
from mmrank.errors import UserError
from mmrank.files import whole_folder


def choose_held_out(pairs: Interactions, share: float, seed: int) -> np.ndarray:
    """(P,) bool: a random share of each user's pairs; every entity keeps one for training."""
    keys = np.random.default_rng(seed).random(len(pairs))
    order = np.lexsort((keys, pairs.rows))
    starts = pairs.row_starts
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
    """Write the lines of a file to a training and a test file, whole or not at all; their paths."""
    if not 0 < share < 1:
        raise ValueError(f'share must be in (0, 1), got {share}')
    if seed < 0:
        raise ValueError(f'seed must be at least 0, got {seed}')
    check_options(min_rating, separator)
    pairs = read_csv(path, min_rating, separator)
    is_test = {
        (pairs.row_names[i], pairs.col_names[j]): out
        for i, j, out in zip(pairs.rows, pairs.cols, choose_held_out(pairs, share, seed).tolist())
    }
    suffix = Path(str(path).removesuffix('.gz')).suffix or '.csv'
    names = f'train{suffix}', f'test{suffix}'
    columns, written = ['user', 'item', 'rating'], 0
    with (
        whole_folder(out_dir, path) as folder,
        (folder / names[0]).open('w', encoding='utf-8') as train,
        (folder / names[1]).open('w', encoding='utf-8') as test,
    ):
        for number, line in enumerate(text_lines(path)):
            line = line.rstrip('\r\n')
            if not line.strip():
                continue
            fields = next(split_fields([line], separator))
            if number == 0 and (header := header_columns(fields)):
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
        if written != len(pairs):
            raise UserError(
                f'{path} has {len(pairs)} entries, but {written} of them in a '
                'line of their own. Fix: remove line breaks within quotes'
            )
    return Path(out_dir) / names[0], Path(out_dir) / names[1]
