"""Times of functions that take turns."""

import time

import pytest

import timing


def test_ratios_are_those_of_one_turn(monkeypatch):
    times = {'a': [1.0, 10.0, 2.0], 'b': [3.0, 20.0, 5.0]}
    times = {name: timing.Times(own, own) for name, own in times.items()}
    monkeypatch.setattr(timing, 'both_times_in_turn', lambda *args: times)
    found = timing.cpu_in_turn({}, 3)
    assert found == {'a': (2.0, 1.0), 'b': (5.0, pytest.approx(2.5))}


def test_wall_and_cpu_time_of_turns(monkeypatch):
    monkeypatch.setattr(timing, 'TURN', 0.02)
    monkeypatch.setattr(timing, 'LONG', 0.05)
    calls = []

    def sleep(name, seconds):
        calls.append(name)
        time.sleep(seconds)

    def work(name):
        calls.append(name)
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass

    steps = {'short': (sleep, ('a', 0.01)), 'long': (sleep, ('b', 0.06)), 'busy': (work, ('c',))}
    times = timing.both_times_in_turn(steps, 3)
    assert [len(x.wall) for x in times.values()] == [3, 3, 3]
    assert [len(x.cpu) for x in times.values()] == [3, 3, 3]
    # The long one has no warm-up.
    assert calls.count('b') == 3
    assert calls.count('a') >= 4
    assert min(times['short'].wall) >= 0.01
    assert max(times['long'].cpu) < 0.03 <= min(times['busy'].cpu)
    found = timing.cpu_in_turn(dict(busy=steps['busy'], short=steps['short']), 1)
    assert found['busy'][1] == 1
    assert found['short'][1] < 0.5
