"""iSogCLR as registered losses: of two views, and of images and texts."""

from torch import Tensor

from mmrank.functional.contrastive.global_contrastive import (
    temperature_gradient,
)
from mmrank.functional.contrastive.negative_terms import NegativeTerms
from mmrank.registry import MODELS
from mmrank.state.samples.sample_temperature import SampleTemperature

from .sogclr_loss import MovingAverageLoss


class IndividualTemperatureLoss(MovingAverageLoss):
    """Base of iSogCLR for two augmentations and for two modalities.

    Args:
        rho: Radius of the ball around uniform weights of the negatives, > 0:
            smaller ones give larger temperatures.
        tau0: Smallest temperature.
        normalize: Scale embeddings to length 1: similarities are cosines.
        scope: ``global``: negatives from all ranks. ``local``: from this one.
        loss_weight: Factor of the whole loss.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        rho: float,
        tau0: float,
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(normalize, scope, loss_weight)
        if not rho > 0:
            raise ValueError(f'rho must be > 0, got {rho!r}')
        self.rho, self.tau0 = float(rho), float(tau0)

    def temperatures(
        self, state: SampleTemperature, entries: Tensor
    ) -> Tensor:
        """The learned temperature of each sample."""
        return entries[state.names.index('tau')]

    def tau_gradient(
        self, terms: NegativeTerms, log_s: Tensor, tau: Tensor
    ) -> Tensor:
        """G of each anchor."""
        return temperature_gradient(
            terms.log_mean, log_s, terms.mean_h, tau, self.rho
        )


@MODELS.register_module()
class ISogCLRLoss(IndividualTemperatureLoss):
    """Robust global contrastive loss with a temperature for each sample.

    ``tau_i log mean_z exp(h_i(z)/tau_i) + (tau_i - tau0) rho`` over both
    views z of all other samples, with ``h_i(z) = <a_i, z> - <a_i, a_i+>``.
    Samples with many similar ones get larger temperatures. Source: Qiu et
    al., Not All Semantics are Created Equal, ICML 2023.

    The temperatures are no parameters of the optimiser: the loss steps them
    itself, in training mode, in forward.

    Args:
        num_samples: Number of samples in the training set.
        rho: Radius of the ball around uniform weights of the negatives, > 0.
            The paper compares 0.1, 0.2, 0.3 and 0.4. Smaller ones give larger
            temperatures.
        tau_init: Temperature at the start.
        tau0: Smallest temperature, > 0.
        tau_max: Largest temperature; the paper does not state it.
        eta: Step size of the temperatures; the paper does not state it. Less
            than ``tau / rho``, see :func:`mmrank.functional.temperature_step`.
        beta0: Weight of the batch in the moving average, in (0, 1]. The paper
            compares 0.7, 0.8 and 0.9.
        beta1: Weight of the new gradient in the momentum of the temperature,
            in (0, 1]; the paper does not state it. 1: no momentum.
        storage: Where the state is kept: ``device`` or ``host``. 12 bytes per
            sample. See :class:`mmrank.state.SampleState`.
        load_state: False resets the state when a checkpoint is loaded.
        momentum_dtype: ``float32`` or ``float16``, which is shorter. See
            :class:`mmrank.state.SampleTemperature`.
        normalize: Scale embeddings to length 1: similarities are cosines.
        scope: ``global``: negatives from all ranks. ``local``: from this one.
        loss_weight: Factor of the whole loss.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        num_samples: int,
        rho: float = 0.3,
        tau_init: float = 0.7,
        tau0: float = 0.05,
        tau_max: float = 1.0,
        eta: float = 0.001,
        beta0: float = 0.9,
        beta1: float = 0.9,
        storage: str = 'device',
        load_state: bool = True,
        momentum_dtype: str = 'float32',
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(rho, tau0, normalize, scope, loss_weight)
        self.temperature = SampleTemperature(
            num_samples,
            beta0,
            beta1,
            eta,
            tau_init,
            tau0,
            tau_max,
            storage,
            load_state,
            momentum_dtype,
        )

    def states(self) -> list[SampleTemperature]:
        """The temperatures."""
        return [self.temperature]


@MODELS.register_module()
class BimodalISogCLRLoss(IndividualTemperatureLoss):
    """Robust global contrastive loss of pairs, with two temperatures each.

    The image of a pair is contrasted with the texts of all other pairs, and
    its text with their images; each has a temperature of its own, and the two
    losses are added. Source: Qiu et al., Not All Semantics are Created Equal,
    ICML 2023, appendix B.

    ``forward(images, texts, sample_idx)``, see :class:`ContrastiveLoss`.

    Args:
        num_samples: Number of pairs in the training set.
        rho: Radius of the ball around uniform weights of the negatives, > 0.
            The paper compares 5.8, 6.0, 6.2 and 6.4 at a batch of 512. The
            weights of B - 1 negatives are at most log(B - 1) from uniform, so
            in batches with ``log(B - 1) <= rho`` temperatures only fall, but
            for what the moving average adds.
        tau_init: Temperature at the start.
        tau0: Smallest temperature, > 0.
        tau_max: Largest temperature; the paper does not state it.
        eta: Step size of the temperatures; the paper does not state it. Less
            than ``tau / rho``, see :func:`mmrank.functional.temperature_step`.
        beta0: Weight of the batch in the moving average, in (0, 1]. The paper
            compares 0.7, 0.8 and 0.9.
        beta1: Weight of the new gradient in the momentum of the temperature,
            in (0, 1]; the paper does not state it. 1: no momentum.
        storage: Where the state is kept: ``device`` or ``host``. 24 bytes per
            pair, 20 with ``momentum_dtype='float16'``, 16 without momentum.
            See :class:`mmrank.state.SampleState`.
        load_state: False resets the state when a checkpoint is loaded.
        momentum_dtype: ``float32`` or ``float16``, which is shorter. See
            :class:`mmrank.state.SampleTemperature`.
        normalize: Scale embeddings to length 1: similarities are cosines.
        scope: ``global``: negatives from all ranks. ``local``: from this one.
        loss_weight: Factor of the whole loss.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        num_samples: int,
        rho: float = 6.0,
        tau_init: float = 0.01,
        tau0: float = 0.005,
        tau_max: float = 0.05,
        eta: float = 0.001,
        beta0: float = 0.9,
        beta1: float = 0.9,
        storage: str = 'device',
        load_state: bool = True,
        momentum_dtype: str = 'float32',
        normalize: bool = True,
        scope: str = 'global',
        loss_weight: float = 1.0,
    ) -> None:
        super().__init__(rho, tau0, normalize, scope, loss_weight)
        setting = (beta0, beta1, eta, tau_init, tau0, tau_max)
        self.image_temperature, self.text_temperature = (
            SampleTemperature(
                num_samples, *setting, storage, load_state, momentum_dtype
            )
            for _ in range(2)
        )

    def states(self) -> list[SampleTemperature]:
        """The temperatures of images and of texts."""
        return [self.image_temperature, self.text_temperature]

    def prefix_of(self, state: SampleTemperature) -> str:
        """Images or texts."""
        return 'image_' if state is self.image_temperature else 'text_'
