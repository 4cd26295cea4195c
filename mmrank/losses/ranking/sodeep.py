"""SoDeep: ranks by a network that learned to sort, as a registered loss."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad

from mmrank.distributed import all_gather_lists
from mmrank.errors import UserError
from mmrank.files import replace_atomically
from mmrank.losses.base import RankingLoss
from mmrank.losses.lists import RankedLists
from mmrank.settings import check_count, one_of
from mmrank.state.base import SavedState

TRAIN = 'python tools/misc/train_sorter.py'


class _RecurrentNetwork(nn.Module):
    """Bidirectional LSTM over the list, linear map of all of its states."""

    def __init__(self, length: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True, bidirectional=True)
        self.to_ranks = nn.Linear(2 * hidden * length, length)

    def forward(self, scores: Tensor) -> Tensor:
        states, _ = self.lstm(scores.unsqueeze(2))
        return self.to_ranks(states.flatten(1))


class _PairNetwork(nn.Module):
    """Mean over the list of what a network makes of each difference."""

    def __init__(self, length: int, hidden: int, layers: int) -> None:
        super().__init__()
        widths = [1, *[hidden] * layers]
        self.hidden = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
        self.to_ranks = nn.Linear(hidden, 1)
        # Where an entry meets itself, half a rank.
        self.own = 0.5 / length

    def forward(self, scores: Tensor) -> Tensor:
        x = (scores[:, None, :] - scores[:, :, None]).unsqueeze(3)
        for layer in self.hidden:
            x = layer(x).tanh()
        return self.to_ranks(x).sigmoid()[..., 0].mean(2) + self.own


NETWORKS = {'lstm': _RecurrentNetwork, 'pairs': _PairNetwork}


class RankSorter(SavedState):
    """Network from scores to ranks.

    ``lstm``, a bidirectional LSTM and a linear map of all of its states, is from Engilberge et al.,
    SoDeep: A Sorting Deep Net to Learn Ranking Loss Surrogates, CVPR 2019, with 2 layers of 512
    units and lists of 100. It learns slowly: small ones were 0.4 ranks off in lists of 8 after 800
    batches. ``pairs``, a network of the difference of two scores, whose mean over the list is the
    rank, was 0.1 off in lists of 32 after as many. It takes n^2 ``hidden`` numbers a list.

    A list of ``length`` scores is brought to mean 0 and variance 1 first. Each of the ``layers``
    has ``hidden`` units (in each direction).
    """

    shape_settings = 'sorter'

    #: (n,) float64 buffer of whole numbers. The output of an LSTM depends on the order of its
    #: input, so :meth:`ranks_of_sorted` always shows a list in this one. A moving average of a
    #: model also averages its buffers: of floats that never change it is the floats, of integers
    #: it is rounded down to other integers.
    order: Tensor

    def __init__(self, length: int, kind: str = 'lstm', hidden: int = 512, layers: int = 2) -> None:
        super().__init__()
        one_of('kind', kind, NETWORKS)
        sizes = dict(length=length, hidden=hidden, layers=layers)
        for name, value in sizes.items():
            check_count(name, value)
        self.settings = dict(sizes, kind=kind)
        self.length = length
        self.network = NETWORKS[kind](length, hidden, layers)
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(length, generator=generator).double()
        self.register_buffer('order', order)

    def train(self, mode: bool = True):
        """Stay in training mode: cuDNN has no gradient in evaluation."""
        return super().train(True)

    def forward(self, scores: Tensor) -> Tensor:
        """(L, n) approximate ranks over n (exact: 1/n, ... 1) of scores of about -1 to 1."""
        centred = scores - scores.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
        # The smallest spread that is made up to 1.
        return self.network(centred * (variance + 1e-6).rsqrt())

    def ranks_of_sorted(self, scores: Tensor) -> Tensor:
        """The same for (L, n) scores in descending order."""
        order = (self.order + 0.5).long()
        place = torch.empty_like(order)
        place[order] = torch.arange(self.length, device=place.device)
        weights = {name: x.to(scores.dtype) for name, x in self.named_parameters()}
        return functional_call(self, weights, scores[:, order])[:, place]

    def save(self, path: str | os.PathLike, rank_error: float) -> None:
        """Write the network, with its mean distance to the exact rank, for :meth:`load`."""
        content = dict(settings=self.settings, state_dict=self.state_dict())
        with replace_atomically(path) as part:
            torch.save({**content, 'rank_error': float(rank_error)}, part)

    @classmethod
    def load(cls, path: str | os.PathLike) -> 'RankSorter':
        """Read a network; UserError if the file is not there, or is not a sorter."""
        fix = f'Fix: train one with {TRAIN}'
        if not Path(path).is_file():
            raise UserError(f'sorter={str(path)!r} is not a file. {fix}')
        try:
            content = torch.load(path, map_location='cpu', weights_only=True)
            sorter = cls(**content['settings'])
            sorter.load_state_dict(content['state_dict'])
        except Exception as error:
            raise UserError(f'sorter={str(path)!r} is not a sorter: {error}. {fix}') from error
        return sorter


def below(scores: Tensor) -> Tensor:
    """(L, 1) value of the entries that fill a list up, below its scores."""
    return scores.amin(1, keepdim=True) - 0.1


class SoDeepLoss(RankingLoss):
    """Mean rank of the positives, by a network that learned to sort.

    ``mean_i r_i / n``, where the r are what a frozen :class:`RankSorter` makes of the whole list.
    Source: Engilberge et al., SoDeep, CVPR 2019, whose loss for average precision is the sum of the
    ranks of the positives; the mean keeps lists of unequal size apart from each other.

    The sorter is trained beforehand on made-up lists, see ``tools/misc/train_sorter.py``, and takes
    up to its ``length`` of scores; shorter lists are filled up below. ``rank_error`` in the log is
    its mean distance to the exact rank: the loss is no better than that. It does not depend on the
    order of the batch, nor on how it is spread over GPUs.

    Args:
        sorter: File of the sorter. A checkpoint of the model also holds it.
    """

    zero_without_positives = True
    #: Range of the (activated) scores, mapped to -1 to 1, for which the sorter is trained: that of
    #: cosines. Scores beyond twice the range have no gradient; of logits take the sigmoid.
    score_range = (-1.0, 1.0)

    def __init__(self, sorter: str | os.PathLike, **kwargs) -> None:
        super().__init__(**kwargs)
        self.sorter = RankSorter.load(sorter).requires_grad_(False)

    def list_losses(self, lists: RankedLists) -> Tensor:
        scores, is_positive, is_real = self._sorted(lists)
        with torch.autocast(scores.device.type, enabled=False):
            ranks = self.sorter.ranks_of_sorted(scores)
        num_positive = is_positive.sum(1)
        has_positive = num_positive > 0
        losses = torch.where(is_positive, ranks, 0).sum(1) / num_positive.clamp(min=1)
        exact = torch.arange(1, ranks.size(1) + 1, device=ranks.device)
        counted = is_real & has_positive[:, None]
        error = torch.where(counted, (ranks.detach() * ranks.size(1) - exact).abs(), 0)
        self.diagnostics = {'rank_error': error.sum() / counted.sum().clamp(min=1)}
        # Attached to all scores, also where no list has a positive; NaN stays, and infinity would
        # become NaN.
        return losses + 0 * lists.pos.clamp(-1, 1).sum(1) + 0 * scores.sum(1)

    def _sorted(self, lists: RankedLists) -> tuple[Tensor, ...]:
        """(L, n) scores of all ranks, descending and filled up below; bool: positives, entries."""
        scores = lists.scores
        is_positive = lists.is_positive
        is_real = is_positive | lists.is_negative
        if lists.group is not None:
            rows = torch.cat([scores, is_positive.to(scores.dtype)])
            joined, is_real, _ = all_gather_lists(rows, is_real, lists.group)
            scores, is_positive = joined.chunk(2)
            is_positive = (is_positive > 0.5) & is_real
        length = self.sorter.length
        width = scores.size(1)
        if width > length and int(is_real.sum(1).max()) > length:
            raise UserError(
                f'a list has {int(is_real.sum(1).max())} scores, but the sorter takes up to '
                f'{length}. Fix: train one with {TRAIN} --length, or make the batches smaller'
            )
        low, high = self.score_range
        dtype = torch.promote_types(scores.dtype, torch.float32)
        scores = torch.where(is_real, scores, low).to(dtype)
        scores = (2 * (scores - low) / (high - low) - 1).clamp(-2, 2)
        missing = (0, max(length - width, 0))
        scores, is_positive, is_real = (pad(x, missing) for x in (scores, is_positive, is_real))
        lowest = torch.where(is_real, scores, torch.inf)
        lowest = torch.where(is_real.any(1, keepdim=True), lowest, 0)
        scores = torch.where(is_real, scores, below(lowest))
        # Of equal scores the negatives come first, whatever their order in the batch.
        first = is_positive.to(torch.uint8).argsort(dim=1, stable=True)
        index = scores.detach().gather(1, first).argsort(dim=1, descending=True, stable=True)
        index = first.gather(1, index)[:, :length]
        return scores.gather(1, index), is_positive.gather(1, index), is_real.gather(1, index)
