"""Batches of a registered loss on the ranks of a group, and a model with the loss."""

from dataclasses import replace

import torch
from registered_losses import CLASSES, SAMPLES, make
from torch import nn
from torch.nn.functional import normalize

from mmrank.distributed import world_group
from mmrank.losses import EmbeddingBatch
from mmrank.models.heads.retrieval_head import _EmbeddingRows

#: Entries of each rank, step by step: uneven, and a rank without any.
SIZES = {2: [(7, 5), (5, 2), (4, 0)], 3: [(5, 4, 3), (4, 0, 3)]}


def queries_of_all_ranks(embeddings, labels):
    """What a retrieval head makes: the queries of all ranks, and the own gallery."""
    group = world_group()
    if group is None:
        return EmbeddingBatch.of_one_batch(embeddings, labels)
    joined, begin, _ = _EmbeddingRows(embeddings, labels, labels).of_all_ranks(group)
    columns = torch.arange(begin, begin + len(embeddings))
    itself = torch.arange(len(joined))[:, None] == columns
    return EmbeddingBatch(joined.embeddings, joined.labels, embeddings, labels, itself)


def batch_of_all_ranks(case, step, sizes):
    """Features of the samples of all ranks, labels and indices."""
    batch = make(case.kind, case.build(), sum(sizes), seed=step)
    g = torch.Generator().manual_seed(step)
    fixed = list(batch.fixed)
    if case.kind in ('rows', 'views'):
        # A sample comes up on several ranks, and twice on one.
        fixed[-1] = fixed[-1] % (SAMPLES // 8)
    if step == 1 and case.kind == 'rows' and getattr(case.details, 'use_sigmoid', True):
        # The last rank has no positive.
        fixed[-2] = fixed[-2].clone()
        fixed[-2][sum(sizes[:-1]) :] = CLASSES
    return replace(
        batch,
        leaves=tuple(
            torch.randn(sum(sizes), 6, generator=g, dtype=torch.float64) for _ in batch.leaves
        ),
        fixed=tuple(fixed),
    )


def share(sizes, rank):
    """The entries of a rank among those of all ranks."""
    begin = sum(sizes[:rank])
    return slice(begin, begin + sizes[rank])


class RankModel(nn.Module):
    """A layer for each input of the loss, and the loss."""

    def __init__(self, case):
        super().__init__()
        torch.manual_seed(0)
        self.loss = case.build()
        self.layers = nn.ModuleList(
            nn.Linear(6, x[0].numel()).double() for x in case.batch().leaves
        )

    def forward(self, batch):
        outputs = [f(x) for f, x in zip(self.layers, batch.leaves)]
        # Box values are one number a row, in (0, 1).
        outputs[1:] = [x.sigmoid().squeeze(1) if x.size(1) == 1 else x for x in outputs[1:]]
        if batch.kind == 'queries':
            queries = queries_of_all_ranks(normalize(outputs[0]), *batch.fixed)
            value = self.loss.embedding_loss(queries)
        else:
            value = batch.with_leaves(outputs).of(self.loss)
        # No parameter is left out where a rank has no box.
        return value + 0 * sum(x.sum() for x in outputs)
