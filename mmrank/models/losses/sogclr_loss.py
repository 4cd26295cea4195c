"""SogCLR as a registered loss."""

import torch
from torch import Tensor

from mmrank.registry import MODELS
from mmrank.state.sample_log_mean import SampleLogMean

from .moving_average_loss import MovingAverageLoss


@MODELS.register_module()
class SogCLRLoss(MovingAverageLoss):
    """Global contrastive loss with one fixed temperature.

    ``tau log mean_z exp(h(z)/tau)`` over the negatives z of the data set,
    estimated with a moving average per sample. Source: Yuan et al., Provable
    Stochastic Optimization for Global Contrastive Learning, ICML 2022.

    Args:
        num_samples: Number of samples in the training set.
        tau: Temperature > 0.
        beta0: Weight of the batch in the moving average, in (0, 1]. The
            iSogCLR paper compares 0.7, 0.8 and 0.9.
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
        storage: str = 'device',
        load_state: bool = True,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(normalize, scope, loss_weight)
        if not tau > 0:
            raise ValueError(f'tau must be > 0, got {tau!r}')
        self.tau = float(tau)
        self.average = SampleLogMean(num_samples, beta0, storage, load_state)

    def states(self) -> list[SampleLogMean]:
        """The averages."""
        return [self.average]

    def temperatures(self, state: SampleLogMean, entries: Tensor) -> Tensor:
        """The one temperature, for every sample."""
        return torch.full_like(entries[0], self.tau)
