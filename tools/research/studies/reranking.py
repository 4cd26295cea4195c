"""Losses of a reranker: a small network scores pairs of photographs, which have three levels.

Each query has a list of candidates: photographs of its product (level 2), of its kind (1), and
others (0); lists have 8 to 24. The classes are split as in embeddings.py. All other photographs of
the classes to be measured on are the list of a query there.

Data: ``file`` and ``apart``, see embeddings.py. Methods: ``lr`` and ``loss``, of logits with
``group=``, which without levels takes level 2 alone for positive; or ``BCE`` with half the level as
the label. For all ``iterations``.
"""

from collections.abc import Callable, Iterator

import torch
from sklearn.metrics import ndcg_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from mmrank.experiments.records import FINAL
from mmrank.functional import average_precision
from mmrank.losses.retrieval.hierarchical import LevelLoss
from plans.study_plan import loss_of

# The data are those of the embeddings.
from .embeddings import prepare as prepare

FIGURES = ('NDCG@10', 'mAP')
QUERIES = 24
SHORTEST = 8
LONGEST = 24
#: Share of the candidates of each level, 0 to 2.
SHARES = (0.5, 0.25, 0.25)
WIDTH = 64


class PairScorer(nn.Module):
    """Scores of (n, D) queries with (n, D) documents, by what they share and where they differ."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.project = nn.Linear(length, WIDTH)
        self.score = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, queries: Tensor, documents: Tensor) -> Tensor:
        """(n,) scores."""
        q = self.project(queries)
        d = self.project(documents)
        return self.score(torch.cat([q * d, (q - d).abs()], -1))[..., 0]


def levels_of(classes: Tensor) -> Tensor:
    """(n, n) number of the levels that two of (n, 2) classes share."""
    return (classes[:, None] == classes).sum(2)


def train(facts: dict, settings: dict, data: Callable) -> Iterator[tuple[int, dict[str, float]]]:
    """Train a scorer; its last step and figures."""
    seed = facts['seed']
    x, classes, other, other_classes = data(facts['stage'] == FINAL, seed)
    levels = levels_of(classes)
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(1000 + seed)
    net = PairScorer(x.size(2))
    loss = None if settings['loss'] == 'BCE' else loss_of(settings['loss'])
    optimizer = torch.optim.AdamW(net.parameters(), lr=settings['lr'], weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings['iterations'])
    for _ in range(settings['iterations']):
        query, document = draw(levels, draws)
        level = levels[query, document]
        view = torch.randint(x.size(1), (2, len(query)), generator=draws)
        scores = net(x[query, view[0]], x[document, view[1]])
        if loss is None:
            value = binary_cross_entropy_with_logits(scores, level / 2)
        else:
            target = level if isinstance(loss, LevelLoss) else (level == 2).long()
            value = loss(scores, target, group=query)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    yield settings['iterations'], figures(net.eval(), other[:, 0], levels_of(other_classes))


def draw(levels: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of the queries and of the documents of a batch of lists."""
    query = torch.randperm(len(levels), generator=draws)[:QUERIES]
    own = levels[query]
    share = torch.zeros(own.shape)
    for level, part in enumerate(SHARES):
        is_level = own == level
        is_level[torch.arange(len(query)), query] = False
        share += part * is_level / is_level.sum(1, keepdim=True).clamp(min=1)
    document = torch.multinomial(share, LONGEST, generator=draws)
    length = torch.randint(SHORTEST, LONGEST + 1, (len(query), 1), generator=draws)
    kept = torch.arange(LONGEST) < length
    return query[:, None].expand(-1, LONGEST)[kept], document[kept]


@torch.no_grad()
def figures(net: nn.Module, x: Tensor, levels: Tensor) -> dict[str, float]:
    """NDCG at ten by the levels, and mAP of the products: (n, D) features search each other."""
    scores = torch.stack([net(row.expand_as(x), x) for row in x])
    others = ~torch.eye(len(x), dtype=torch.bool)
    scores = scores[others].view(len(x), -1)
    levels = levels[others].view(len(x), -1)
    positive = levels == 2
    precisions = [average_precision(s, p) for s, p in zip(scores, positive) if p.any()]
    ndcg = ndcg_score((2**levels - 1).numpy(), scores.numpy(), k=10)
    return {'NDCG@10': float(ndcg), 'mAP': float(torch.stack(precisions).mean())}
