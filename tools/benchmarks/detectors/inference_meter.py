"""Measures speed and memory of a test run of a detector."""

import functools
import resource
import time

import torch
from mmengine.hooks import Hook


class InferenceMeter(Hook):
    """Measures images a second and peak memory of a test loop, after ``warmup`` batches."""

    # First in after_*, so that no other hook's time counts.
    priority = 'VERY_HIGH'

    warmup = 3

    def __init__(self) -> None:
        self.timed_images = 0
        self.model_seconds = self.loop_seconds = 0.0
        self.memory_bytes: int | None = None
        self.memory_kind = 'unknown'
        self._batch_seconds = 0.0
        self._skipped = 0

    @property
    def images_per_second(self) -> float:
        """Speed of the model with its post-processing, without data."""
        return self.timed_images / self.model_seconds

    @property
    def images_per_second_with_data(self) -> float:
        """Speed of the loop: data loading, model, post-processing."""
        return self.timed_images / self.loop_seconds

    def before_test(self, runner) -> None:
        """Start measuring: time the ``test_step`` of the runner's model."""
        self._skipped = min(self.warmup, len(runner.test_dataloader) // 2)
        self._model = runner.model
        self._is_cuda = next(self._model.parameters()).is_cuda
        step = self._model.test_step

        @functools.wraps(step)
        def timed_step(data):
            self._synchronise()
            start = time.perf_counter()
            result = step(data)
            self._synchronise()
            self._batch_seconds = time.perf_counter() - start
            return result

        self._model.test_step = timed_step
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats()
        self._last = time.perf_counter()

    def _synchronise(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize()

    def after_test_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Count a batch."""
        now = time.perf_counter()
        if batch_idx >= self._skipped:
            self.timed_images += len(outputs)
            self.model_seconds += self._batch_seconds
            self.loop_seconds += now - self._last
        self._last = now
        # Here, not after the loop: the evaluation needs memory of its own.
        self._read_memory()

    def _read_memory(self) -> None:
        if self._is_cuda:
            self.memory_bytes = torch.cuda.max_memory_allocated()
            self.memory_kind = 'GPU, allocated'
        else:
            self.memory_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.memory_kind = 'CPU, whole process'

    def after_test(self, runner) -> None:
        """Restore the model's own ``test_step``."""
        del self._model.test_step
