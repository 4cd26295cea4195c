"""Speed and memory of a test loop, with known times."""

import time
from types import SimpleNamespace

import torch

from detectors.inference_meter import InferenceMeter

STEP, LOAD = 0.02, 0.03


class Sleeper(torch.nn.Module):
    """A model whose batches take a known time; the first are slow."""

    def __init__(self, megabytes=0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.megabytes = megabytes
        self.calls = 0

    def test_step(self, data):
        self.calls += 1
        time.sleep(STEP if self.calls > 2 else 10 * STEP)
        torch.ones(2**18 * self.megabytes)
        return list(data)


def run_loop(meter, model, batches):
    runner = SimpleNamespace(model=model, test_dataloader=batches)
    meter.before_test(runner)
    for index, batch in enumerate(batches):
        time.sleep(LOAD)
        outputs = model.test_step(batch)
        meter.after_test_iter(runner, index, batch, outputs)
    meter.after_test(runner)


def test_speeds_leave_out_warmup_and_data():
    meter, model = InferenceMeter(), Sleeper()
    meter.warmup = 2
    run_loop(meter, model, [[1, 2], [3, 4], [5, 6], [7, 8], [9]])
    assert meter.timed_images == 5
    # Sleeping takes at least its time, on a busy machine more.
    assert 3 * STEP <= meter.model_seconds < 20 * STEP
    assert meter.loop_seconds >= 3 * (STEP + LOAD)
    assert meter.images_per_second <= 5 / (3 * STEP)
    assert meter.images_per_second_with_data < meter.images_per_second
    # The model has its own method again.
    assert 'test_step' not in vars(model)
    assert model.calls == 5


def test_half_the_batches_count_at_least():
    meter = InferenceMeter()
    run_loop(meter, Sleeper(), [[1], [2], [3]])
    assert meter.timed_images == 2
    meter = InferenceMeter()
    run_loop(meter, Sleeper(), [[1]])
    assert meter.timed_images == 1


def test_memory_is_the_peak_of_the_process():
    meter = InferenceMeter()
    run_loop(meter, Sleeper(8), [[1], [2]])
    assert meter.memory_kind == 'CPU, whole process'
    assert meter.memory_bytes > 2**25
