"""Times of several functions that take turns, by torch.utils.benchmark."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch.utils.benchmark import Timer

#: Seconds of one turn, at least. A longer function runs twice in a turn, of
#: which the second run counts; a shorter one in blocks.
TURN = 0.02

Steps = Mapping[str, tuple[Callable, tuple]]


def times_in_turn(steps: Steps, repeats: int) -> dict[str, list[float]]:
    """Run functions in turn, so that a busy machine slows down all alike.

    Args:
        steps: Function and arguments by name. They run with as many threads
            as torch has now; accelerators are waited for.
        repeats: Turns of each function.

    Returns:
        Seconds of a call, for each function turn by turn.
    """
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
            # The median would leave out the waits for a busy machine, but of
            # the short functions only.
            times[name].append(turn.mean)
    return times


def in_turn(steps: Steps, repeats: int) -> dict[str, tuple[float, float]]:
    """Median times, and ratios that hold on a busy machine.

    Args:
        steps: See :func:`times_in_turn`; the first one is the reference.
        repeats: See there.

    Returns:
        By name the median of the seconds, and the median of the ratios to the
        first function in the same turn.
    """
    return _medians(times_in_turn(steps, repeats))


def cpu_in_turn(steps: Steps, repeats: int) -> dict[str, tuple[float, float]]:
    """The same for long functions, in seconds of this process's CPU time.

    What other processes do does not count. Each function runs once before it
    is timed.

    Args:
        steps: See :func:`times_in_turn`; the first one is the reference.
        repeats: Turns of each function.

    Returns:
        As :func:`in_turn`.
    """
    times = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, (function, args) in steps.items():
            start = time.process_time()
            function(*args)
            if turn:
                times[name].append(time.process_time() - start)
    return _medians(times)


def _medians(
    times: Mapping[str, list[float]],
) -> dict[str, tuple[float, float]]:
    first = next(iter(times.values()))
    return {
        name: (
            statistics.median(own),
            statistics.median(a / b for a, b in zip(own, first)),
        )
        for name, own in times.items()
    }
