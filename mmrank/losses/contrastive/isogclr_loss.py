"""iSogCLR as registered losses: of two views, and of images and texts."""

from torch import Tensor

from mmrank.losses.contrastive.global_contrastive import temperature_gradient
from mmrank.losses.contrastive.negative_terms import NegativeTerms
from mmrank.state.samples.sample_temperature import SampleTemperature

from .sogclr_loss import MovingAverageLoss


class IndividualTemperatureLoss(MovingAverageLoss):
    """Base of iSogCLR for two augmentations and for two modalities.

    The temperatures are no parameters of the optimiser: the loss steps them itself, in training
    mode, in forward.

    Args:
        num_samples: Number of samples, or pairs, in the training set.
        rho: Radius of the ball around uniform weights of the negatives, > 0: smaller ones give
            larger temperatures. The paper compares 0.1,
            0.2, 0.3 and 0.4 for two augmentations.
        tau_init: Temperature at the start.
        tau0: Smallest temperature, > 0.
        tau_max: Largest temperature; the paper does not state it.
        eta: Step size of the temperatures; the paper does not state it, the authors' code has 0.03
            for two augmentations. Less than ``tau / rho``, see
            :func:`mmrank.functional.temperature_step`. A visit moves a temperature by about ``2 eta
            rho / tau`` of the way to where its batch would have it (``tau_gain`` in the log): near
            1
            it repeats its last batch, and 0.05 to 0.1 takes 100 visits of a sample and more.
            ``mmrank.RankingMonitorHook`` warns above 0.5.
        beta0: Weight of the batch in the moving average, in (0, 1]. The paper compares 0.7, 0.8 and
            0.9.
        beta1: Weight of the new gradient in the momentum of the temperature, in (0, 1]; the paper
            does not state it, the authors' code has 0.5. 1: no momentum.
        storage: Where the state is kept: ``device``, ``host`` or ``sharded`` over the ranks. 12
            bytes per sample and temperature, 10 with ``momentum_dtype='float16'``, 8 without
            momentum. See
            :class:`mmrank.state.SampleState`.
        load_state: False resets the state when a checkpoint is loaded.
        momentum_dtype: ``float32`` or ``float16``, which is shorter. See
            :class:`mmrank.state.SampleTemperature`.
        gradient_clip: The gradient G of a temperature counts as at most this, and at least its
            negative; None: in full. The authors' code has 3 for two augmentations and 5 for images
            and texts.

    Attributes:
        sides: Names of the states: one for both views, or one for each.

    Raises:
        ValueError: On a parameter out of range.
    """

    sides = ('temperature',)

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
        gradient_clip: float | None = None,
        gather: str = 'all',
    ) -> None:
        super().__init__(normalize=normalize, scope=scope, loss_weight=loss_weight, gather=gather)
        if not rho > 0:
            raise ValueError(f'rho must be > 0, got {rho!r}')
        self.rho, self.tau0 = float(rho), float(tau0)
        for name in self.sides:
            state = SampleTemperature(
                num_samples,
                beta0=beta0,
                beta1=beta1,
                eta=eta,
                tau_init=tau_init,
                tau0=tau0,
                tau_max=tau_max,
                storage=storage,
                load_state=load_state,
                momentum_dtype=momentum_dtype,
                gradient_clip=gradient_clip,
            )
            self.add_module(name, state)

    def states(self) -> list[SampleTemperature]:
        """The temperatures of :attr:`sides`."""
        return [self.get_submodule(name) for name in self.sides]

    def temperatures(self, state: SampleTemperature, entries: Tensor) -> Tensor:
        """The learned temperature of each sample."""
        return entries[state.names.index('tau')]

    def tau_gradient(self, terms: NegativeTerms, log_s: Tensor, tau: Tensor) -> Tensor:
        """G of each anchor."""
        return temperature_gradient(terms.log_mean, log_s, terms.mean_h, tau, self.rho)

    def gain_of_a_visit(self, state: SampleTemperature, tau: Tensor) -> Tensor:
        """Mean of ``2 eta rho / tau``, see ``eta``."""
        return (2 * state.eta * self.rho / tau).mean()


class ISogCLRLoss(IndividualTemperatureLoss):
    """Robust global contrastive loss with a temperature for each sample.

    ``tau_i log mean_z exp(h_i(z)/tau_i) + (tau_i - tau0) rho`` over both
    views z of all other samples, with ``h_i(z) = <a_i, z> - <a_i, a_i+>``. Samples with many
    similar ones get larger temperatures. Source: Qiu et
    al., Not All Semantics are Created Equal, ICML 2023. Equations 13 and 14 print s before the step
    of the batch; the authors' code and this take s after it.

    The temperatures are no parameters of the optimiser: the loss steps them itself, in training
    mode, in forward.

    Raises:
        ValueError: On a parameter out of range.
    """


class BimodalISogCLRLoss(IndividualTemperatureLoss):
    """Robust global contrastive loss of pairs, with two temperatures each.

    The image of a pair is contrasted with the texts of all other pairs, and its text with their
    images; each has a temperature of its own, and the two losses are added. Source: Qiu et al., Not
    All Semantics are Created Equal, ICML 2023, appendix B.

    ``forward(images, texts, sample_idx)``, see :class:`ContrastiveLoss`.

    Args:
        rho: Radius of the ball around uniform weights of the negatives, > 0. The paper compares
            5.8, 6.0, 6.2 and 6.4 at a batch of 512. The weights of B - 1 negatives are at most
            log(B - 1) from uniform, so in batches with ``log(B - 1) <= rho`` temperatures only
            fall, but for what the moving average adds.

    Raises:
        ValueError: On a parameter out of range.
    """

    sides = ('image_temperature', 'text_temperature')

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
        gradient_clip: float | None = None,
        gather: str = 'all',
    ) -> None:
        super().__init__(
            num_samples,
            rho=rho,
            tau_init=tau_init,
            tau0=tau0,
            tau_max=tau_max,
            eta=eta,
            beta0=beta0,
            beta1=beta1,
            storage=storage,
            load_state=load_state,
            momentum_dtype=momentum_dtype,
            normalize=normalize,
            scope=scope,
            loss_weight=loss_weight,
            gradient_clip=gradient_clip,
            gather=gather,
        )

    def prefix_of(self, state: SampleTemperature) -> str:
        """Images or texts."""
        return 'image_' if state is self.image_temperature else 'text_'
