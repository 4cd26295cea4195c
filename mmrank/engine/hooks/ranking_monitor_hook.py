"""Logs what a loss does and warns when it does not learn."""

import math
from collections import Counter

import torch
from mmengine.hooks import Hook

from mmrank.engine.runners import modules_with
from mmrank.losses.protocols import HasDiagnostics
from mmrank.registry import HOOKS
from mmrank.settings import check_positive

#: By the end of a diagnostic's name: the value above which a loss hardly learns, and what to say.
_LIMITS = {
    # The slope of h has fallen to 1 / (1 + x)^2, 1/441, of the slope at 0.
    'argument': (
        20.0,
        '{name} is saturated: its argument is {value:.0f}, where the outer function is flat and '
        'the gradient vanishes. {advice}',
    ),
    'idle': (
        0.3,
        '{name} learns from few of its lists: {value:.0%} of those with positives have no pair '
        "within the margin, and so no gradient. Fix: mode='flatten' for a head of several classes, "
        'or a wider margin (tau); none if the training is done and all is ranked right',
    ),
    'tau_gain': (
        0.5,
        '{name}.{key} = 2 eta rho / tau is {value:.2g}: a temperature mostly repeats its last '
        'batch instead of averaging over visits. Fix: eta of {kind} of about tau / (20 rho) and '
        '100 visits of a sample or more',
    ),
}


@HOOKS.register_module()
class RankingMonitorHook(Hook):
    """Logs the diagnostics of the losses of the model, with the losses.

    For stable AP: ``risk`` (the weighted pair loss X, which shows what is learnt), ``rho``,
    ``argument`` (``rho X``, what the outer function h is applied to) and ``mean_positive`` (mu).
    SOPRC, SmoothAP and SOAP have an ``argument``, too. For contrastive losses: ``pos_score`` (mean
    similarity of the positives), ``negatives`` (mean number of an anchor), and for those with state
    ``log_s`` and ``tau_mean``, ``tau_min``, ``tau_max`` and ``tau_gain`` of the batch.

    Before training it logs the ``reading_advice`` of the losses that have one. It warns once for
    each loss whose outer function is saturated, most of whose lists are ``idle`` (have positives,
    but no pair within the margin), or whose temperatures repeat their last batch.

    Args:
        interval: Iterations between readings, each of which makes the host wait for the device.

    Raises:
        FloatingPointError: During training, when the loss or a diagnostic is NaN or infinite.
    """

    priority = 'NORMAL'  # After the loss was computed, before the logger reads (BELOW_NORMAL)
    PATIENCE = 5  # Readings of a loss in a row above a limit before its one warning

    def __init__(self, interval: int = 10) -> None:
        check_positive(interval=interval)
        self.interval = interval
        self._high_readings: Counter[str] = Counter()
        self._warned: set[str] = set()

    def before_train(self, runner) -> None:
        """Log once what a user should know of each kind of loss before its first figures."""
        modules = modules_with(runner, 'reading_advice').values()
        for line in sorted({module.reading_advice for module in modules}):
            runner.logger.info(line)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        if not self.every_n_train_iters(runner, self.interval):
            return
        if outputs and 'loss' in outputs:
            self._check_finite(runner, 'the loss', float(torch.as_tensor(outputs['loss']).detach()))
        found = modules_with(runner, 'diagnostics')
        losses = {name: x for name, x in found.items() if isinstance(x, HasDiagnostics)}
        for name, loss in losses.items():
            prefix = '' if len(losses) == 1 else f'{name}.'
            for key, value in loss.diagnostics.items():
                value = float(value)
                self._check_finite(runner, f'{key} of {name}', value)
                runner.message_hub.update_scalar(f'train/{prefix}{key}', value)
                found = [_LIMITS[end] for end in _LIMITS if key.endswith(end)]
                if not found:
                    continue
                limit, text = found[0]
                place = f'{name}.{key}'
                self._high_readings[place] = self._high_readings[place] + 1 if value > limit else 0
                if self._high_readings[place] >= self.PATIENCE and place not in self._warned:
                    self._warned.add(place)
                    advice = getattr(loss, 'saturation_advice', '')
                    words = dict(name=name, key=key, advice=advice, kind=type(loss).__name__)
                    runner.logger.warning(text.format(value=value, **words))

    @staticmethod
    def _check_finite(runner, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise FloatingPointError(
                f'{what} is {value} at iteration {runner.iter + 1}: the scores are no longer '
                'finite. Lower the learning rate, add optim_wrapper.clip_grad=dict(max_norm=10), '
                'or check for corrupt images and boxes'
            )
