"""Recommendations of a two-tower model for a user."""

from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
import torch
from torch import nn

from mmrank.datasets.interactions.interaction_dataset import entities
from mmrank.datasets.interactions.interactions import Interactions
from mmrank.errors import UserError
from mmrank.metrics.top_k_inner_product import top_k_inner_product


@torch.no_grad()
def recommend(
    model: nn.Module, pairs: Interactions, users: Sequence[str], count: int = 10
) -> list[list[tuple[str, float]]]:
    """Names and inner products of the ``count`` best items of each of some users, best first.

    The model is a ``mmrank.TwoTower`` trained on ``pairs``; a user's own are left out.
    """
    if not (hasattr(model, 'left') and hasattr(model, 'right')):
        what = f'model.type is {type(model).__name__}, which has no towers'
        raise UserError(what, "pass a config of a type='mmrank.TwoTower'")
    rows = _rows_of(users, pairs)
    device = next(model.parameters()).device
    left = {key: value.to(device) for key, value in entities(rows, pairs.row_features).items()}
    left_rows = model.left(left)
    right_rows = model.right(dict(ids=torch.arange(pairs.shape[1], device=device)))
    # A user's training pairs: the place in ``rows``, and the column.
    seen = pairs.of_rows(rows)
    seen = [torch.from_numpy(x).to(device) for x in seen]
    _, best = top_k_inner_product(left_rows, right_rows, min(count, pairs.shape[1]), *seen)
    return [
        [
            (str(pairs.col_names[col]), float(own @ right_rows[col]))
            for col in cols.tolist()
            if col >= 0
        ]
        for own, cols in zip(left_rows, best)
    ]


def _rows_of(users: Sequence[str], pairs: Interactions) -> np.ndarray:
    row_of = {str(name): row for row, name in enumerate(pairs.row_names)}
    for user in users:
        if str(user) not in row_of:
            names = list(row_of)
            close = get_close_matches(str(user), names, n=3) or names[:3]
            what = f'user {user!r} is not among the {len(names)} users of the training pairs'
            fix = 'pass a name as it stands in train_dataloader.dataset.ann_file'
            raise UserError(f'{what}, such as {", ".join(map(repr, close))}', fix)
    return np.array([row_of[str(user)] for user in users])
