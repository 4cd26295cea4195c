"""Tells a training forward from its recomputation."""

import torch


def inside_backward() -> bool:
    """Whether autograd is running backward in this thread.

    A forward that runs now is a recomputation by activation checkpointing:
    its batch has been counted already.
    """
    return torch._C._current_graph_task_id() != -1
