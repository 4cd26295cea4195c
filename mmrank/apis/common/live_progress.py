"""Progress of an mmengine run on the console: a bar, or a line now and then.

mmengine logs for files; on a console the user needs to see progress and the time left.
"""

import time
from collections.abc import Mapping

from mmengine.hooks import Hook
from rich import progress as bars
from rich.console import Console

# Seconds between updates of a bar, and between lines without a terminal.
_REFRESH, _LINE_INTERVAL = 0.2, 10.0


class LiveProgressHook(Hook):
    """Shows a training's loss and time left: a bar, or a line every ten seconds in a pipe."""

    priority = 'VERY_LOW'

    def __init__(self, title: str, console: Console) -> None:
        self.title, self.console = title, console
        # Not started without a terminal: it keeps the count and the time left all the same.
        self._bar = bars.Progress(
            bars.TextColumn('{task.description}'),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn('{task.fields[status]}'),
            bars.TimeElapsedColumn(),
            console=console,
        )
        self._last_shown = 0.0

    def _say(self, text: str) -> None:
        self.console.print(f'{self.title}: {text}', highlight=False)

    def before_train(self, runner) -> None:
        """Start the clock and the bar."""
        done = runner.iter
        total = runner.max_iters
        if done:
            self._say(f'continues at iteration {done} of {total}')
        self._task = self._bar.add_task(self.title, total=total, completed=done, status='')
        if self.console.is_terminal:
            self._bar.start()

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Show loss and time left."""
        done = runner.iter + 1
        total = runner.max_iters
        self._bar.update(self._task, completed=done)
        wait = _REFRESH if self.console.is_terminal else _LINE_INTERVAL
        if time.monotonic() - self._last_shown < wait and done < total:
            return
        self._last_shown = time.monotonic()
        left = self._bar.tasks[0].time_remaining
        status = 'estimating time left' if left is None else f'{left:.0f} s left'
        if isinstance(outputs, Mapping):
            status = f'loss {float(outputs["loss"]):.3f}, {status}'
        self._bar.update(self._task, status=status)
        if not self.console.is_terminal:
            self._say(f'iteration {done}/{total}, {status}')

    def before_val(self, runner) -> None:
        """Show that evaluation runs."""
        self._bar.update(self._task, status='evaluating')
        if not self.console.is_terminal:
            self._say('evaluating')

    def after_train(self, runner) -> None:
        """Stop the bar."""
        self.stop()

    def stop(self) -> None:
        """Stop the bar; may be called again."""
        self._bar.stop()
