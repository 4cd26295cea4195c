"""Fixtures of the tests that break things."""

import pytest
import torch


@pytest.fixture(autouse=True)
def own_torch_load(monkeypatch):
    """Undo what a tool that runs in this process does to ``torch.load``."""
    monkeypatch.setattr(torch, 'load', torch.load)
