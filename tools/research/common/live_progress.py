"""Progress of an mmengine run on the console: a bar, or a line now and then.

mmengine logs for files; on a console the user needs to see progress and the time left.
"""

import time
from collections.abc import Mapping

from mmengine.hooks import Hook
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# Seconds between updates of a bar, and between lines without a terminal.
_REFRESH = 0.2
_LINE_INTERVAL = 10.0
_STEPS_TO_ESTIMATE = 5


class LiveProgressHook(Hook):
    """Shows iteration, loss and time left while a runner trains.

    On a terminal this is a bar; elsewhere (a pipe, a log file) one line
    every ten seconds. Register it with ``runner.register_hook``.

    Args:
        title: Name of the run.
        console: Where to show it.
    """

    priority = 'VERY_LOW'

    def __init__(self, title: str, console: Console) -> None:
        self.title = title
        self.console = console
        self._bar = self._task = None
        self._start = self._last_shown = 0.0
        self._first_iter = 0

    def before_train(self, runner) -> None:
        """Start the clock and the bar."""
        self._start = time.monotonic()
        self._first_iter = runner.iter
        if self._first_iter:
            self.console.print(
                f'{self.title}: continues at iteration {self._first_iter} of {runner.max_iters}',
                highlight=False,
            )
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn('{task.description}'),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn('{task.fields[status]}'),
                TimeElapsedColumn(),
                console=self.console,
            )
            self._task = self._bar.add_task(
                self.title, total=runner.max_iters, completed=self._first_iter, status=''
            )
            self._bar.start()

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Show loss and time left."""
        done, total = runner.iter + 1, runner.max_iters
        now = time.monotonic()
        wait = _REFRESH if self._bar else _LINE_INTERVAL
        if now - self._last_shown < wait and done < total:
            return
        self._last_shown = now
        steps = max(1, done - self._first_iter)
        left = (now - self._start) / steps * (total - done)
        loss = float(outputs['loss']) if isinstance(outputs, Mapping) else None
        status = '' if loss is None else f'loss {loss:.3f}, '
        # The first steps are slow and would give a frightening estimate.
        if steps >= _STEPS_TO_ESTIMATE or done == total:
            status += f'{left:.0f} s left'
        else:
            status += 'estimating time left'
        if self._bar:
            self._bar.update(self._task, completed=done, status=status)
        else:
            self.console.print(f'{self.title}: iteration {done}/{total}, {status}', highlight=False)

    def before_val(self, runner) -> None:
        """Show that evaluation runs."""
        if self._bar:
            self._bar.update(self._task, status='evaluating')
        else:
            self.console.print(f'{self.title}: evaluating', highlight=False)

    def after_train(self, runner) -> None:
        """Stop the bar."""
        self.stop()

    def stop(self) -> None:
        """Stop the bar; to be called too when training is interrupted."""
        if self._bar:
            self._bar.update(self._task, status='done')
            self._bar.stop()
            self._bar = None
