"""Times of several functions that take turns, by torch.utils.benchmark."""

import statistics
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
    times = times_in_turn(steps, repeats)
    first = next(iter(times.values()))
    return {
        name: (
            statistics.median(own),
            statistics.median(a / b for a, b in zip(own, first)),
        )
        for name, own in times.items()
    }
