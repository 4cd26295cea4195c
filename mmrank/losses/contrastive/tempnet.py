"""TempNet: a small network predicts the temperature of each image and each text."""

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import linear

from mmrank.distributed import joined_group, mean_gradient
from mmrank.errors import UserError
from mmrank.settings import check_ascending, check_count, check_not_negative, check_within
from mmrank.state.sample_state import SampleLogMean
from mmrank.tensors import at_least_float32, unit_rows

from .base import ContrastedBatch, scalar_parameter
from .sogclr import MovingAverageLoss


class TemperatureNetwork(nn.Module):
    """Temperatures of embeddings, by their similarity to learned prototypes.

    With ``z = sigmoid(W x + b)`` and the cosines' numerators ``p_m = <z, c_m/|c_m|>`` the
    temperature is ``tau_min + (tau_max - tau_min) sigmoid(sum_m v_m (softmax(p/s)_m - 1/M)
    sigmoid(p_m) + u)``, with dropout of z. W, b, c, s, v and u are learned. Source: see
    :class:`TempNetLoss`, section 4.2 and the authors' code.
    """

    def __init__(
        self, width: int, prototypes: int, tau_min: float, tau_max: float, dropout: float
    ) -> None:
        super().__init__()
        self.bounds = tau_min, tau_max
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.prototypes = nn.Parameter(torch.randn(prototypes, width))
        self.log_scale = scalar_parameter(math.log(0.01))
        self.pool = nn.Linear(prototypes, 1)
        nn.init.ones_(self.pool.weight)
        nn.init.zeros_(self.pool.bias)

    def forward(self, rows: Tensor) -> Tensor:
        """(n,) temperatures, at least float32, of (n, width) rows."""
        if rows.size(1) != self.project.in_features:
            raise UserError(
                f'the embeddings have length {rows.size(1)}, but width={self.project.in_features}. '
                f'Fix: width={rows.size(1)}'
            )
        rows = at_least_float32(rows)
        rows = self.dropout(_linear(self.project, rows).sigmoid())
        scores = rows @ unit_rows(self.prototypes.to(rows.dtype)).t()
        shares = (scores / self.log_scale.to(rows.dtype).exp()).softmax(1)
        levels = _linear(self.pool, (shares - 1 / scores.size(1)) * scores.sigmoid())
        low, high = self.bounds
        return low + (high - low) * levels[:, 0].sigmoid()


def _linear(layer: nn.Linear, rows: Tensor) -> Tensor:
    return linear(rows, *(x.to(rows.dtype) for x in layer.parameters()))


class TempNetLoss(MovingAverageLoss):
    """Robust global contrastive loss of pairs whose temperatures a network predicts.

    The loss of :class:`BimodalISogCLRLoss`, ``tau (log mean_z exp(h(z)/tau) + rho)`` with a moving
    average per sample, where tau is a function of the embedding: ``image_network`` of the image's,
    ``text_network`` of the text's, both :class:`TemperatureNetwork`. So a pair that was never seen
    has a temperature, too. The embeddings get no gradient through it. Source: Qiu et al., To Cool
    or not to Cool? Temperature Network Meets Large Foundation Models via DRO, ICML 2024, section 4.

    Give ``loss.parameters()`` to the optimiser, at a rate of their own: the authors take 3e-5 for
    the networks, times 0.9 each epoch, and 8e-4 for the encoders
    (``paramwise_cfg=dict(custom_keys={'_network': dict(lr_mult=0.0375)})``).

    Args:
        num_samples: Number of pairs in the training set.
        width: Length of the embeddings.
        rho: Radius of the ball around uniform weights of the negatives, >= 0; the authors take 7
            for batches of 1,024. Smaller ones give larger temperatures.
        tau_min: Temperatures stay above.
        tau_max: And below.
        prototypes: Prototypes of each network.
        dropout: Share of the hidden values that training drops, in [0, 1).
        beta0: Weight of the batch in the moving average, in (0, 1]; the authors take 0.8.
        load_state: False resets the state when a checkpoint is loaded.
    """

    prefixes = ('image_', 'text_')

    def __init__(
        self,
        num_samples: int,
        width: int,
        rho: float = 7.0,
        tau_min: float = 0.005,
        tau_max: float = 0.05,
        prototypes: int = 256,
        dropout: float = 0.5,
        beta0: float = 0.8,
        load_state: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        check_count('width', width)
        check_count('prototypes', prototypes)
        check_not_negative(rho=rho)
        check_within('[0, 1)', dropout=dropout)
        check_ascending(tau_min=tau_min, tau_max=tau_max)
        self.rho = float(rho)
        for prefix in self.prefixes:
            average = SampleLogMean(num_samples, beta0, load_state)
            network = TemperatureNetwork(width, prototypes, tau_min, tau_max, dropout)
            self.add_module(f'{prefix}average', average)
            self.add_module(f'{prefix}network', network)

    def temperatures(self, entries: Tensor, batch: ContrastedBatch) -> Tensor:
        networks = [getattr(self, f'{x}network') for x in self.prefixes]
        # A temperature needs the full mantissa, as h/tau does.
        with torch.autocast(entries.device.type, enabled=False):
            taus = [self._predict(network, x) for network, x in zip(networks, batch.local.views)]
        return torch.stack(taus)

    def _predict(self, network: nn.Module, rows: Tensor) -> Tensor:
        """(n,) temperatures; the gradient of the network is the mean over the ranks."""
        group = joined_group(self)
        if group is None:
            return network(rows.detach())
        parameters = dict(network.named_parameters())
        joined = mean_gradient(torch.cat([x.flatten() for x in parameters.values()]), group)
        parts = joined.split([x.numel() for x in parameters.values()])
        shared = {name: part.view_as(parameters[name]) for name, part in zip(parameters, parts)}
        return functional_call(network, shared, (rows.detach(),))
