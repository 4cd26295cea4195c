"""Makes the temperatures of the samples visible during training."""

from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from mmrank.checks import check_at_least
from mmrank.engine.runners import unwrap_model
from mmrank.registry import HOOKS
from mmrank.state.sample_averages import SampleTemperature
from mmrank.visualization.temperatures import TemperatureHistory, temperatures_of

#: Of the histograms, from ``tau0`` to ``tau_max`` of the loss.
_NUM_BINS = 200
_CHECKPOINT_KEY = 'mmrank_temperature_history'


@HOOKS.register_module()
class TemperatureHook(Hook):
    """Draws histograms of the temperatures over time, and what they mean.

    Every ``interval`` epochs it updates ``history_<name>.csv`` and ``history_<name>.png`` in
    ``work_dir/temperatures``; checkpoints keep the history. After training,
    :func:`~mmrank.visualization.temperature_report.write_temperature_report` adds the rest.
    ``tools/analysis_tools/temperatures.py`` does the same from checkpoints.

    Args:
        interval: Epochs between readings, which copy the temperatures to the host.
        num_images: Images of each kind on the sheet; 0 for no sheet.
    """

    # After the loss has stepped, before checkpoints are written (VERY_LOW).
    priority = 'LOW'

    def __init__(self, interval: int = 1, num_images: int = 40) -> None:
        check_at_least(1, interval=interval)
        check_at_least(0, num_images=num_images)
        self.interval = interval
        self.num_images = num_images
        self._histories: dict[str, TemperatureHistory] = {}

    def before_train(self, runner) -> None:
        model = unwrap_model(runner.model)
        states = [module for module in model.modules() if isinstance(module, SampleTemperature)]
        if not states:
            raise ValueError(
                'TemperatureHook is in custom_hooks, but no loss of the model has per-sample '
                "temperatures. Use type='mmrank.ISogCLRLoss', or remove the hook"
            )
        for state, found in zip(states, temperatures_of(model)):
            self._histories.setdefault(
                found.name, TemperatureHistory(state.step.tau0, state.step.tau_max, _NUM_BINS)
            )

    def after_train_epoch(self, runner) -> None:
        if self.every_n_epochs(runner, self.interval):
            self._read(runner, runner.epoch + 1)

    def after_train(self, runner) -> None:
        temperatures = temperatures_of(unwrap_model(runner.model))
        if not is_main_process():
            return
        # Imported late: training itself needs no matplotlib.
        from mmrank.visualization.temperature_report import write_temperature_report

        dataset = runner.train_loop.dataloader.dataset
        for found in temperatures:
            try:
                _, correlation = write_temperature_report(
                    found, dataset, self._folder(runner), num_images=self.num_images
                )
            except (OSError, ValueError) as error:
                # Not after hours of training for the sake of a picture.
                runner.logger.warning(f'TemperatureHook: {error}')
                continue
            if correlation is not None:
                runner.logger.info(
                    f'{found.name}: Spearman correlation of class frequency '
                    f'and mean temperature {correlation}'
                )
        runner.logger.info(f'Temperatures are in {self._folder(runner)}')

    def _read(self, runner, step: int) -> None:
        # All processes: they may have a part of the temperatures each.
        temperatures = temperatures_of(unwrap_model(runner.model))
        if not is_main_process():
            return
        from mmrank.visualization.temperature_report import plot_history

        for found in temperatures:
            history = self._histories[found.name]
            history.add(step, found.tau[found.visited])
            if not history.steps:
                continue
            path = self._folder(runner) / f'history_{found.name}'
            history.write_csv(path.with_suffix('.csv'))
            plot_history(history, path.with_suffix('.png'), found.name)

    @staticmethod
    def _folder(runner) -> Path:
        return Path(runner.work_dir) / 'temperatures'

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        checkpoint[_CHECKPOINT_KEY] = {
            name: history.state_dict() for name, history in self._histories.items()
        }

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        if runner._resume:
            self._histories = {
                name: TemperatureHistory.from_state(state)
                for name, state in checkpoint.get(_CHECKPOINT_KEY, {}).items()
            }
