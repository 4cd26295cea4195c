"""Gloo processes that start in a moment: mmrank.testing's, with the context of the tests."""

from forked_processes import process_context

from mmrank.testing import processes
from mmrank.testing.processes import free_port

__all__ = ['free_port', 'run_on_ranks']


def run_on_ranks(function, world_size, *args):
    """By rank, the list of tensors that ``function(rank, *args)`` returned."""
    return processes.run_on_ranks(function, world_size, *args, context=process_context())
