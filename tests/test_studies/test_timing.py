"""Times of functions that take turns."""

import time

import pytest
import torch

from mmrank.studies.common import timing


def test_functions_take_turns_with_the_threads_of_torch(monkeypatch):
    monkeypatch.setattr(timing, 'TURN', 0.002)
    calls, threads = [], torch.get_num_threads()

    def step(name, seconds):
        assert torch.get_num_threads() == threads
        calls.append(name)
        time.sleep(seconds)

    steps = {'short': (step, ('a', 0.004)), 'long': (step, ('b', 0.016))}
    times = timing.times_in_turn(steps, 3)
    # A warm-up and a run in each turn.
    assert calls == ['a', 'a', 'b', 'b'] * 3
    assert [len(x) for x in times.values()] == [3, 3]
    assert min(times['short']) >= 0.004
    assert min(times['long']) >= 0.016


def test_ratios_are_those_of_one_turn(monkeypatch):
    times = {'a': [1.0, 10.0, 2.0], 'b': [3.0, 20.0, 5.0]}
    monkeypatch.setattr(timing, 'times_in_turn', lambda *args: times)
    found = timing.in_turn({}, 3)
    assert found == {'a': (2.0, 1.0), 'b': (5.0, pytest.approx(2.5))}
