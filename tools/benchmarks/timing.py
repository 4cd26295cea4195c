"""Times of functions that take turns, so that a busy machine slows down all alike, and memory."""

import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

#: Seconds of one turn, at least: a shorter function is repeated.
TURN = 0.02
#: Seconds of a first run that counts as well.
LONG = 1.0
Steps = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Times:
    """Seconds of a call, turn by turn."""

    wall: list[float]  # Of the clock on the wall
    cpu: list[float]  # Of this process's CPU, all threads together


def machine() -> str:
    """CPU, its vector instructions and the BLAS of torch, on which ratios depend."""
    info = Path('/proc/cpuinfo')
    text = info.read_text() if info.is_file() else ''
    name = re.search(r'model name\s*: (.*)', text)
    blas = re.search(r'BLAS_INFO=(\w+)', torch.__config__.show())
    parts = [name[1] if name else platform.processor(), torch.backends.cpu.get_cpu_capability()]
    return ', '.join([*parts, f'BLAS {blas[1] if blas else "unknown"}'])


def both_times_in_turn(steps: Steps, repeats: int) -> dict[str, Times]:
    """Wall and CPU time of functions, by name; a first run under :data:`LONG` seconds warms up."""
    calls = {}
    times = {}
    for name, step in steps.items():
        wall, cpu = _seconds(step, 1)
        calls[name] = max(1, round(TURN / max(wall, 1e-9)))
        counts = wall > LONG
        times[name] = Times([wall] * counts, [cpu] * counts)
    for turn in range(repeats):
        for name, step in steps.items():
            own = times[name]
            if len(own.wall) <= turn:
                wall, cpu = _seconds(step, calls[name])
                own.wall.append(wall)
                own.cpu.append(cpu)
    return times


def median_ratio(own: list[float], reference: list[float]) -> float:
    """Median of the ratios of the same turns."""
    return statistics.median(a / b for a, b in zip(own, reference))


def peak_extra_memory(step: Callable, make_args: Callable[[], tuple]) -> int:
    """Most bytes of tensors alive on the CPU beyond the arguments, by events of the allocator."""
    step(*make_args())
    args = make_args()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as prof:
        step(*args)
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == '[memory]']
    level = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak


def _seconds(step: Callable[[], object], calls: int) -> tuple[float, float]:
    """Wall and CPU seconds of a call, the mean of some."""
    wall = time.perf_counter()
    cpu = time.process_time()
    for _ in range(calls):
        step()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    cpu = time.process_time() - cpu
    return (time.perf_counter() - wall) / calls, cpu / calls
