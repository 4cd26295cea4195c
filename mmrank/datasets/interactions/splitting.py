"""Hold a part of each user's lines out of a file."""

import csv
from pathlib import Path

import numpy as np

from mmrank.datasets.interactions.read_csv import is_kept, read_csv, table_of_interactions
from mmrank.files import whole_folder
from mmrank.settings import check_at_least, check_within


def split_file(
    path: str | Path,
    out_dir: str | Path,
    share: float = 0.1,
    min_rating: float | None = None,
    separator: str = ',',
    seed: int = 0,
) -> list[Path]:
    """Write the lines of a file to a training and a test file, whole or not at all; their paths."""
    check_within('(0, 1)', share=share)
    check_at_least(0, seed=seed)
    pairs = read_csv(path, min_rating, separator)
    # A random share of each user's pairs.
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
    is_test = {
        (pairs.row_names[i], pairs.col_names[j]): out
        for i, j, out in zip(pairs.rows, pairs.cols, held_out.tolist())
    }
    header, columns, rows = table_of_interactions(path, separator)
    train = [header] if header else []
    test = list(train)
    for place, fields in rows:
        row = dict(zip(columns, fields))
        if min_rating is None or is_kept(row['rating'], min_rating, place):
            is_out = is_test[row['user'], row['item']]
            (test if is_out else train).append(fields)
    suffix = Path(str(path).removesuffix('.gz')).suffix or '.csv'
    paths = [Path(out_dir) / f'{name}{suffix}' for name in ('train', 'test')]
    with whole_folder(out_dir, path) as folder:
        for target, lines in zip(paths, (train, test)):
            with (folder / target.name).open('w', encoding='utf-8', newline='') as file:
                if separator == ',':
                    csv.writer(file, lineterminator='\n').writerows(lines)
                else:
                    file.writelines(separator.join(line) + '\n' for line in lines)
    return paths
