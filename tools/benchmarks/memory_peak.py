"""Peak memory that one call takes from torch's CPU allocator."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_extra_memory(step: Callable, make_args: Callable[[], tuple]) -> int:
    """Most bytes of tensors alive beyond the arguments, by events of the allocator."""
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
