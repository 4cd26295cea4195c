"""SIGKILL at random moments of real trainings, which resume bit for bit."""

import random
import shutil
import time
from multiprocessing import connection

import pytest
import torch
from tool_trainings import start, write_config
from training_ends import assert_same, assert_same_run, contents

KILLS = 20
#: Package that a training needs.
TRAININGS = {'exact_detector': 'mmdet', 'isogclr': 'mmpretrain', 'two_tower': 'mmengine'}


@pytest.fixture(scope='module')
def whole_run(tmp_path_factory):
    """Gives a config and its uninterrupted run."""
    made = {}

    def make(name, ranks):
        pytest.importorskip(TRAININGS[name])
        if (name, ranks) not in made:
            folder = tmp_path_factory.mktemp(f'{name}_{ranks}')
            config = write_config(name, folder, ranks)
            whole = folder / 'whole'
            assert not train(config, whole, ranks)
            made[name, ranks] = config, whole
        return made[name, ranks]

    return make


def log_of(work_dir):
    """Output of the first rank."""
    return work_dir.with_name(f'{work_dir.name}_0.log').read_text()


def exit_codes(processes, seconds):
    """Wait for the end of all, or of one that failed; None: still runs."""
    end = time.monotonic() + seconds
    running = list(processes)
    while running and time.monotonic() < end:
        connection.wait([x.sentinel for x in running], end - time.monotonic())
        running = [x for x in running if x.is_alive()]
        if any(x.exitcode for x in processes):
            break  # the others would wait for it for half an hour
    return [process.exitcode for process in processes]


def train(config, work_dir, ranks, left=None, draw=None):
    """Train, to the end or until a kill.

    Args:
        config: Config file.
        work_dir: Work folder, resumed from if there is a checkpoint.
        ranks: Processes.
        left: Iterations until the kill, which comes a moment later, on a slow machine, too; 0: in
            the start. None: it is not killed.
        draw: How long a moment is, and which rank is killed first.

    Returns:
        Whether it was killed before its end.
    """
    last = lines_of_losses(work_dir) + (left or 0)
    processes = start(config, work_dir, ranks)
    while lines_of_losses(work_dir) < last and all(x.is_alive() for x in processes):
        time.sleep(0.005)
    codes = exit_codes(processes, 600 if left is None else draw.uniform(0, 0.2))
    for process in draw.sample(processes, ranks) if draw else processes:
        process.kill()
        # The others notice it, or go on, even to save a checkpoint.
        time.sleep(draw.uniform(0, 0.2) if draw and ranks > 1 else 0)
    for process in processes:
        process.join()
    killed = any(codes) or None in codes
    assert left is not None or not killed, log_of(work_dir)
    assert not any(codes), log_of(work_dir)
    return killed


def assert_same_end(work_dir, whole, ranks):
    """Compare checkpoints, losses and what else is left behind."""
    names = sorted(x.name for x in whole.glob('*.pth'))
    assert {x.name for x in work_dir.glob('*.pth')} == {*names}
    assert_same_run(work_dir, whole, names, ranks)


def lines_of_losses(work_dir):
    """Iterations that the first rank did, repeated ones included."""
    path = work_dir / 'losses_0.txt'
    return path.read_text().count('\n') if path.exists() else 0


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('ranks', [1, 2])
@pytest.mark.parametrize('name', TRAININGS)
def test_killed_at_twenty_moments(whole_run, tmp_path, name, ranks):
    """Kill, resume, kill again, ..., until there were so many kills; one of four in the start."""
    config, whole = whole_run(name, ranks)
    iterations = lines_of_losses(whole)
    draw = random.Random(f'{name} {ranks}')
    kills, trainings = 0, 0
    work_dir = tmp_path / 'work'
    while kills < KILLS:
        trainings += 1
        killed = True
        while killed:
            assert kills + trainings < 5 * KILLS
            left = None
            if kills < KILLS:
                left = draw.randrange(iterations) if draw.random() > 0.25 else 0
            killed = train(config, work_dir, ranks, left, draw)
            kills += killed
        assert_same_end(work_dir, whole, ranks)
        for path in tmp_path.glob('work_*.log'):
            path.unlink()
        shutil.rmtree(work_dir)


def kill_after_checkpoint(config, work_dir, ranks, epoch):
    """Train until the checkpoint of an epoch is there, and kill."""
    processes = start(config, work_dir, ranks)
    while not (work_dir / f'epoch_{epoch}.pth').exists():
        assert all(process.is_alive() for process in processes)
        time.sleep(0.01)
    for process in processes:
        process.kill()
        process.join()


def read(work_dir, name, rank=0):
    """What :class:`resume_run.StateHook` has kept."""
    path = work_dir / f'{name}_{rank}.pt'
    return torch.load(path, weights_only=False)


def without_statistics(state):
    """Leave out batch norm of the EMAHook's copy.

    It is that of the last iteration of its process. The copy of the first one is saved; the next
    iteration replaces it.
    """
    average = {
        key: value for key, value in state['ema_state_dict'].items() if '.running_' not in key
    }
    return {**state, 'ema_state_dict': average}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('ranks', [(1, 2, 1), (2, 1, 2)], ids=str)
@pytest.mark.parametrize('name', TRAININGS)
def test_resumed_on_another_number_of_ranks(whole_run, tmp_path, name, ranks):
    _, whole = whole_run(name, 1)
    is_two_tower = name == 'two_tower'
    hooks = [dict(type='mmengine.StateHook')]
    configs = {n: write_config(name, tmp_path, n, hooks) for n in (1, 2)}
    work_dir = tmp_path / 'work'
    for epoch, number in enumerate(ranks):
        if epoch < 2:
            kill_after_checkpoint(configs[number], work_dir, number, epoch + 1)
        else:
            train(configs[number], work_dir, number)
        for rank in range(number if epoch else 0):
            # All that was saved is there, on each rank.
            saved = read(work_dir, f'saved{epoch}')
            assert_same(read(work_dir, 'first', rank), saved)
    log = log_of(work_dir)
    assert log.count('Resuming from') == 2
    for rank in range(ranks[-1]):
        end = without_statistics(read(work_dir, 'last', rank))
        if not is_two_tower:  # whose counts are those of the data
            assert any('loss' in key for key in end['state_dict'])
        assert_same(end, without_statistics(read(work_dir, 'last')))
    names = sorted(x.name for x in whole.glob('epoch_*.pth'))
    assert {x.name for x in work_dir.glob('epoch_*.pth')} >= {*names}
    if not is_two_tower:
        assert log.count('random numbers differ; resume with as many processes') == 2
        return
    # Its batches are the same for every number of ranks, so it is as well.
    expected = contents(whole / names[-1])
    for key, value in expected['state_dict'].items():
        torch.testing.assert_close(end['state_dict'][key], value)
