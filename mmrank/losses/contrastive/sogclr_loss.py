"""SogCLR as a registered loss."""

import torch
from torch import Tensor

from mmrank.registry import MODELS
from mmrank.state.samples.sample_log_mean import SampleLogMean

from .moving_average_loss import MovingAverageLoss


@MODELS.register_module()
class SogCLRLoss(MovingAverageLoss):
    """Global contrastive loss with one fixed temperature.

    ``tau log mean_z exp(h(z)/tau)`` over the negatives z of the data set,
    estimated with a moving average per sample. Source: Yuan et al., Provable
    Stochastic Optimization for Global Contrastive Learning, ICML 2022; for
    images and texts Qiu et al., Not All Semantics are Created Equal, ICML
    2023, section 3, whose two losses are added.

    Args:
        num_samples: Number of samples in the training set.
        tau: Temperature > 0.
        beta0: Weight of the batch in the moving average, in (0, 1]. The
            iSogCLR paper compares 0.7, 0.8 and 0.9.
        bimodal: True: the views are modalities; each is contrasted with the
            other one of all other samples and has an average of its own.
            False: with both views of them, one average for both.
        storage: Where the state is kept: ``device`` or ``host``. See
            :class:`mmrank.state.SampleState`.
        load_state: False starts the state anew when a checkpoint is loaded.
        normalize: Give embeddings length 1, so that similarities are cosines.
        scope: ``global``: negatives from all ranks. ``local``: from this one.
        loss_weight: Factor of the whole loss.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        num_samples: int,
        tau: float = 0.1,
        beta0: float = 0.9,
        bimodal: bool = False,
        storage: str = 'device',
        load_state: bool = True,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(normalize, scope, loss_weight)
        if not tau > 0:
            raise ValueError(f'tau must be > 0, got {tau!r}')
        self.tau, self.bimodal = float(tau), bimodal
        self._prefixes = ('image_', 'text_') if bimodal else ('',)
        for prefix in self._prefixes:
            average = SampleLogMean(num_samples, beta0, storage, load_state)
            self.add_module(f'{prefix}average', average)

    def states(self) -> list[SampleLogMean]:
        """The averages: one, or those of images and of texts."""
        return [getattr(self, f'{x}average') for x in self._prefixes]

    def prefix_of(self, state: SampleLogMean) -> str:
        """Images or texts, if they are apart."""
        return self._prefixes[self.states().index(state)]

    def temperatures(self, state: SampleLogMean, entries: Tensor) -> Tensor:
        """The one temperature, for every sample."""
        return torch.full_like(entries[0], self.tau)
