"""Gloo processes that start in a moment: mmrank.testing's, started as the tests start theirs."""

import socket

from forked_processes import process_context

from mmrank.testing import processes


def free_port() -> int:
    """A port that no process listens at."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def run_on_ranks(function, world_size, *args):
    """By rank, what ``function(rank, *args)`` returned."""
    method = process_context().get_start_method()
    return processes.run_on_ranks(function, world_size, *args, method=method)
