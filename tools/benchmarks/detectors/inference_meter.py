"""Describes a test run of a detector: names from its config, speed and memory."""

import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.hooks import Hook

_UNKNOWN = '-'


def describe_loss(model: Mapping[str, Any]) -> str:
    """Type of the (first) classification loss, such as ``'StableAP'``; ``'-'`` without one."""
    head = model.get('bbox_head') or (model.get('roi_head') or {}).get('bbox_head') or {}
    if isinstance(head, list | tuple):
        head = head[0]
    kind = str((head.get('loss_cls') or {}).get('type', '')).rpartition('.')[2]
    return kind.removesuffix('Loss') or _UNKNOWN


def describe_backbone(model: Mapping[str, Any]) -> str:
    """Type and depth of the backbone: ``'ResNet-50'``."""
    backbone = model.get('backbone') or {}
    kind = str(backbone.get('type', '')).rpartition('.')[2]
    depth = backbone.get('depth')
    return f'{kind}-{depth}' if depth else kind or _UNKNOWN


def innermost(dataset: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data set that a config's wrappers hold."""
    while 'pipeline' not in dataset and 'dataset' in dataset:
        dataset = dataset['dataset']
    return dataset


def describe_test_size(dataset: Mapping[str, Any]) -> str:
    """Longest and shortest side of the first resize: ``'1333 x 800'``; ``'-'`` without one."""
    for step in innermost(dataset).get('pipeline') or ():
        scale = step.get('scale') or step.get('img_scale')
        if isinstance(scale, list | tuple) and len(scale) == 2:
            return f'{scale[0]} x {scale[1]}'
    return _UNKNOWN


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
        self._skipped = self._rest = 0

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
        else:
            self._is_exact = _reset_peak()
            self._rest = _proc_bytes('VmRSS') or 0
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
        elif (peak := _proc_bytes('VmHWM')) is not None:
            size = sum(t.nbytes for t in (*self._model.parameters(), *self._model.buffers()))
            self.memory_bytes = max(0, peak - self._rest) + size
            self.memory_kind = 'CPU, growth + model' if self._is_exact else 'CPU, upper bound'

    def after_test(self, runner) -> None:
        """Restore the model's own ``test_step``."""
        del self._model.test_step


def _proc_bytes(key: str) -> int | None:
    """A line of /proc/self/status in bytes; None where there is none."""
    status = Path('/proc/self/status')
    if status.is_file():
        for line in status.read_text('ascii', 'replace').splitlines():
            if line.startswith(f'{key}:'):
                return int(line.split()[1]) * 1024
    return None


def _reset_peak() -> bool:
    """Reset the peak of resident memory; return whether it was reset."""
    try:
        Path('/proc/self/clear_refs').write_text('5', 'ascii')
    except OSError:
        return False
    return True
