"""Times of several functions that take turns, by torch.utils.benchmark."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Timer

#: Seconds of one turn, at least. A longer function runs twice in a turn, of which the second run
#: counts; a shorter one in blocks.
TURN = 0.02

Steps = Mapping[str, tuple[Callable, tuple]]


def times_in_turn(steps: Steps, repeats: int) -> dict[str, list[float]]:
    """Run functions in turn, so that a busy machine slows down all alike."""
    timers = {
        name: Timer(
            'function(*args)',
            globals=dict(function=function, args=args),
            # Its own default is one thread.
            num_threads=torch.get_num_threads(),
        )
        for name, (function, args) in steps.items()
    }
    times = {name: [] for name in steps}
    for _ in range(repeats):
        for name, timer in timers.items():
            turn = timer.blocked_autorange(min_run_time=TURN)
            # The median would leave out the waits for a busy machine, but of the short functions
            # only.
            times[name].append(turn.mean)
    return times


def in_turn(steps: Steps, repeats: int) -> dict[str, tuple[float, float]]:
    """Median times, and ratios that hold on a busy machine."""
    return _medians(times_in_turn(steps, repeats))


@dataclass(frozen=True)
class Times:
    """Seconds of a call, turn by turn.

    Attributes:
        wall: Of the clock on the wall.
        cpu: Of this process's CPU, all threads together.
    """

    wall: list[float]
    cpu: list[float]


def both_times_in_turn(steps: Steps, repeats: int, long: float = 1.0) -> dict[str, Times]:
    """Run functions in turn and measure wall time and CPU time together.

    A turn repeats a function until it lasts :data:`TURN`.
    """
    calls, times = {}, {}
    for name, (function, args) in steps.items():
        wall, cpu = _seconds(function, args, 1)
        calls[name] = max(1, round(TURN / max(wall, 1e-9)))
        counts = wall > long
        times[name] = Times([wall] * counts, [cpu] * counts)
    for turn in range(repeats):
        for name, (function, args) in steps.items():
            own = times[name]
            if len(own.wall) > turn:
                continue
            wall, cpu = _seconds(function, args, calls[name])
            own.wall.append(wall)
            own.cpu.append(cpu)
    return times


def cpu_in_turn(steps: Steps, repeats: int) -> dict[str, tuple[float, float]]:
    """The same as :func:`in_turn` in seconds of this process's CPU time.

    What other processes do does not count.
    """
    times = both_times_in_turn(steps, repeats)
    return _medians({name: own.cpu for name, own in times.items()})


def median_ratio(own: list[float], reference: list[float]) -> float:
    """Median of the ratios of the same turns."""
    return statistics.median(a / b for a, b in zip(own, reference))


def _seconds(function: Callable, args: tuple, calls: int) -> tuple:
    """Wall and CPU seconds of a call, the mean of some."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        function(*args)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    cpu = time.process_time() - cpu
    return (time.perf_counter() - wall) / calls, cpu / calls


def _medians(times: Mapping[str, list[float]]) -> dict[str, tuple[float, float]]:
    first = next(iter(times.values()))
    return {name: (statistics.median(own), median_ratio(own, first)) for name, own in times.items()}
