"""The classification losses of a query head: one for each ranking."""

import copy
from typing import NamedTuple

from torch import Tensor, nn

from mmrank.losses.separate_rankings import can_be_separate, separate_rankings

from .level_collector import LevelCollector


class _Waiting(NamedTuple):
    """A ranking whose loss is not computed yet.

    Attributes:
        collector: What holds its loss.
        call: Scores, targets and weights.
        shown: The 0 that the head got in place of the loss.
    """

    collector: LevelCollector
    call: tuple
    shown: Tensor


class DecoderLosses(nn.Module):
    """Replaces ``loss_cls`` of a query head: one loss for each ranking.

    The scores of a decoder layer over all queries and images are one ranking. Those of the encoder,
    of which two-stage detectors take the best as queries, are another, and so are those of the
    denoising queries of each
    layer: their positives are objects with noise, which no prediction has to compete with.

    Rankings of one size, those of the decoder layers and those of their denoising queries, are
    computed together where the loss can do it, see
    :func:`mmrank.losses.separate_rankings.separate_rankings`. The
    head then gets a 0 for each, which :meth:`finish` replaces.

    Args:
        loss: The loss; each ranking gets a copy, so that the EMA state of one ranking never sees
            the scores of another.
        num_layers: Number of decoder layers.
        encoder: Whether the head also trains the proposals of the encoder.
        denoising: Whether it trains denoising queries.
        together: Whether the head returns what this module gives it as it
            is, so that it can be replaced afterwards.

    Attributes:
        layers: Collectors of the decoder layers, the last one shown at test time.
        encoder: That of the encoder or None.
        denoising: Those of the denoising queries; empty without.
    """

    def __init__(
        self,
        loss: nn.Module,
        num_layers: int,
        encoder: bool,
        denoising: bool,
        together: bool = False,
    ) -> None:
        super().__init__()
        self.use_sigmoid = True

        def collectors(number: int) -> nn.ModuleList:
            return nn.ModuleList(LevelCollector(copy.deepcopy(loss)) for _ in range(number))

        self.layers = collectors(num_layers)
        self.encoder = collectors(1)[0] if encoder else None
        self.denoising = collectors(num_layers if denoising else 0)
        # Not a second path to the same buffers in the state_dict.
        self._current: list[LevelCollector] = []
        self.together = together
        self._waiting: list[_Waiting] | None = None

    def begin(self) -> None:
        """Begin a batch, forgetting what an interrupted pass left."""
        losses = [x.loss for x in (*self.layers, *self.denoising)]
        together = self.together and can_be_separate(losses)
        self._waiting = [] if together else None

    def open(self, collector: LevelCollector) -> None:
        """Send the next calls to this collector."""
        collector.open()
        self._current = [collector]

    def forward(self, *args, **kwargs) -> Tensor:
        """Record a call of the head; returns a scalar 0.

        Raises:
            RuntimeError: If the head calls it outside ``loss_by_feat``.
        """
        if not self._current:
            raise RuntimeError(
                'the classification loss of a listwise head was called outside loss_by_feat'
            )
        return self._current[0](*args, **kwargs)

    def rank(
        self, collector: LevelCollector, federated: tuple[Tensor, Tensor] | None, **boxes: Tensor
    ) -> Tensor | dict[str, Tensor]:
        """Loss of a ranking, or a scalar 0 in its place.

        Args:
            collector: What has gathered the scores of the ranking.
            federated: See :meth:`LevelCollector.gather`.
            **boxes: Box values that the loss requires.
        """
        if self._waiting is None or collector is self.encoder:
            return collector.close(federated, **boxes)
        *arguments, _ = collector.gather(federated)
        shown = arguments[0].new_zeros(())
        self._waiting.append(_Waiting(collector, tuple(arguments), shown))
        return shown

    def finish(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put the losses of the rankings where their zeros are.

        Args:
            losses: What the head returns.

        Returns:
            A copy with all losses.

        Raises:
            RuntimeError: If a 0 is not there.
        """
        waiting, self._waiting = self._waiting or [], None
        found = {}
        for group in (self.layers, self.denoising):
            own = [x for x in waiting if any(x.collector is c for c in group)]
            if own:
                values = separate_rankings([x.collector.loss for x in own], [x.call for x in own])
                found.update(zip((id(x.shown) for x in own), values))
        lost = found.keys() - set(map(id, losses.values()))
        if lost:
            raise RuntimeError(
                f'{len(lost)} of {len(found)} classification losses are not '
                f'among those that the head returned: {list(losses)}'
            )
        return {key: found.get(id(x), x) for key, x in losses.items()}
