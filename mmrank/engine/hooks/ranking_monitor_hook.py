"""Logs what a loss does and warns when it stops learning."""

import math

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from mmrank.models.losses import ContrastiveLoss, RankingLoss
from mmrank.registry import HOOKS


@HOOKS.register_module()
class RankingMonitorHook(Hook):
    """Logs the diagnostics of the ranking and contrastive losses of the model.

    For stable AP: ``mean_positive`` (mu), ``weight_spread`` (standard
    deviation of the weights over their mean) and ``argument`` (what the outer
    function h is applied to). For contrastive losses: ``pos_score`` (mean
    similarity of the positives), ``negatives`` (mean number of an anchor),
    and for those with state ``log_s`` and ``tau_mean``, ``tau_min`` and
    ``tau_max`` of the batch. They appear beside the losses in the console,
    the JSON log and every visualisation backend.

    Args:
        interval: Iterations between readings; a reading makes the host wait
            for the device once.
        saturation: Argument above which h is flat: its slope has fallen to
            ``1/(1 + x)^2`` of that at 0.
        patience: Readings of a loss in a row above ``saturation`` before its
            one warning.

    Raises:
        ValueError: If a parameter is not > 0.
        FloatingPointError: During training, when a diagnostic is NaN or
            infinite.
    """

    # After the loss was computed, before the logger reads (BELOW_NORMAL).
    priority = 'NORMAL'

    def __init__(
        self, interval: int = 10, saturation: float = 300.0, patience: int = 5
    ) -> None:
        for name, value in (
            ('interval', interval),
            ('saturation', saturation),
            ('patience', patience),
        ):
            if not value > 0:
                raise ValueError(f'{name} must be > 0, got {value!r}')
        self.interval = interval
        self.saturation = saturation
        self.patience = patience
        self._flat_readings: dict[str, int] = {}
        self._warned: set[str] = set()

    def after_train_iter(
        self, runner, batch_idx, data_batch=None, outputs=None
    ) -> None:
        """Read, check and log."""
        if not self.every_n_train_iters(runner, self.interval):
            return
        model = runner.model
        model = model.module if is_model_wrapper(model) else model
        losses = [
            (name, m)
            for name, m in model.named_modules()
            if isinstance(m, (RankingLoss, ContrastiveLoss)) and m.diagnostics
        ]
        for name, loss in losses:
            prefix = '' if len(losses) == 1 else f'{name}.'
            for key, value in loss.diagnostics.items():
                value = float(value)
                self._check_finite(runner, name, key, value)
                runner.message_hub.update_scalar(f'train/{prefix}{key}', value)
                if key == 'argument':
                    self._check_saturation(runner, name, value)

    @staticmethod
    def _check_finite(runner, name: str, key: str, value: float) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f'{key} of {name} is {value} at iteration {runner.iter + 1}: '
                'the scores are no longer finite. Lower the learning rate, '
                'add optim_wrapper.clip_grad=dict(max_norm=10), or look for '
                'broken images and boxes'
            )

    def _check_saturation(self, runner, name: str, value: float) -> None:
        flat = value > self.saturation
        readings = self._flat_readings.get(name, 0) + 1 if flat else 0
        self._flat_readings[name] = readings
        if name in self._warned or readings < self.patience:
            return
        self._warned.add(name)
        runner.logger.warning(
            f'{name} is saturated: its argument is {value:.0f}, where the '
            'outer function is flat and hardly a gradient is left. Set rho=1 '
            '(detection), lower a or t, or raise tau'
        )
