"""Gloo processes that start in a moment: mmrank.testing's, started as the tests start theirs."""

from forked_processes import process_context

from mmrank.testing import processes
from mmrank.testing.processes import free_port

__all__ = ['free_port', 'run_on_ranks']


def run_on_ranks(function, world_size, *args):
    """By rank, what ``function(rank, *args)`` returned."""
    method = process_context().get_start_method()
    return processes.run_on_ranks(function, world_size, *args, method=method)
