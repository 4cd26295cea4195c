"""SIGKILL at random moments of real trainings, which resume bit for bit."""

import random
import shutil
import time
from collections import Counter
from multiprocessing import connection

import pytest
import torch
from forked_processes import process_context
from tool_trainings import start, write_config
from training_ends import assert_same, contents, read_losses

KILLS = 20
#: Package that a training needs.
TRAININGS = {'exact_detector': 'mmdet', 'isogclr': 'mmpretrain', 'two_tower': 'mmengine'}


@pytest.fixture(scope='module')
def whole_run(tmp_path_factory):
    """Gives a config, its uninterrupted run, and the seconds of its parts.

    The parts are the start, up to the first epoch, and the rest.
    """
    made = {}

    def make(name, ranks):
        pytest.importorskip(TRAININGS[name])
        if (name, ranks) not in made:
            folder = tmp_path_factory.mktemp(f'{name}_{ranks}')
            config = write_config(name, folder, ranks)
            # The first process waits for the imports of the server.
            first = process_context().Process(target=time.sleep, args=(0,))
            first.start()
            first.join()
            whole = folder / 'whole'
            begin = time.monotonic()
            processes = start(config, whole, ranks)
            wait_for_training(whole, processes)
            middle = time.monotonic()
            assert not any(exit_codes(processes, 600)), log_of(whole)
            seconds = middle - begin, time.monotonic() - middle
            made[name, ranks] = config, whole, seconds
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


def wait_for_training(work_dir, processes):
    """Wait for the first epoch of a training, or its end."""
    while not (work_dir / 'phase_0.txt').exists() and processes[0].is_alive():
        time.sleep(0.005)


def draw_moment(draw, seconds):
    """Draw a moment: one of four is in the start, as each resume has one.

    Returns:
        Whether it counts from the first epoch, and seconds.
    """
    in_training = draw.random() > 0.25
    return in_training, draw.uniform(0, seconds[in_training])


def seconds_now(seconds, moment, killed, losses, all_losses):
    """How long the training takes now that the machine is faster or slower.

    With the time of an idle machine every kill on a busy one would come before the first
    checkpoint; with that of a busy machine most trainings on an idle one would end before the kill.

    Args:
        seconds: Of the start and of the rest, as drawn from so far.
        moment: What was drawn last.
        killed: Whether it came before the end.
        losses: Iterations that the training did until then.
        all_losses: Iterations of the uninterrupted run.

    Returns:
        The same with the rest as it is now.
    """
    in_training, passed = moment
    if not in_training or losses < all_losses / 10:
        return seconds  # too few iterations to tell
    rest = passed * all_losses / losses
    return seconds[0], rest if killed else min(rest, seconds[1])


def train(config, work_dir, ranks, moment=None, draw=None):
    """Train, to the end or until a kill.

    Args:
        config: Config file.
        work_dir: Work folder, resumed from if there is a checkpoint.
        ranks: Processes.
        moment: When to kill, see :func:`draw_moment`. None: not at all.
        draw: Which rank is killed first, and when the others are.

    Returns:
        What the training was doing when it was killed; None if it had ended.
    """
    for path in work_dir.glob('phase_*.txt'):
        path.unlink()
    processes = start(config, work_dir, ranks)
    in_training, seconds = moment or (False, 600)
    if in_training:
        wait_for_training(work_dir, processes)
    codes = exit_codes(processes, seconds)
    for process in draw.sample(processes, ranks) if draw else processes:
        process.kill()
        # The others notice it, or go on, even to save a checkpoint.
        time.sleep(draw.uniform(0, 0.2) if moment and ranks > 1 else 0)
    for process in processes:
        process.join()
    if not any(codes) and None not in codes:
        return None
    assert moment, log_of(work_dir)
    assert not any(codes), log_of(work_dir)
    phase = work_dir / 'phase_0.txt'
    # Empty: killed while it changed.
    return (phase.read_text() or 'between') if phase.exists() else 'start'


def assert_same_end(work_dir, whole, ranks):
    """Compare checkpoints, losses and what else is left behind."""
    names = sorted(x.name for x in whole.glob('*.pth'))
    assert {x.name for x in work_dir.glob('*.pth')} == {*names}
    for name in names:
        assert_same(contents(work_dir / name), contents(whole / name), name)
    for rank in range(ranks):
        assert read_losses(work_dir, rank) == read_losses(whole, rank)
    assert not list(work_dir.glob('.*.tmp'))


def lines_of_losses(work_dir):
    """Iterations that the first rank did, repeated ones included."""
    path = work_dir / 'losses_0.txt'
    return path.read_text().count('\n') if path.exists() else 0


def kill_and_compare(whole_run, tmp_path, name, ranks, kills):
    """Kill, resume, kill again, ..., until there were so many kills."""
    config, whole, measured = whole_run(name, ranks)
    seconds = measured
    last = lines_of_losses(whole)
    begin = time.monotonic()
    draw = random.Random(f'{name} {ranks}')
    phases, resumed, trainings = Counter(), 0, 0
    work_dir = tmp_path / 'work'
    while phases.total() < kills:
        trainings += 1
        while True:
            assert phases.total() + trainings < 5 * kills, phases
            more = phases.total() < kills
            moment = draw_moment(draw, seconds) if more else None
            done = lines_of_losses(work_dir)
            killed = train(config, work_dir, ranks, moment, draw)
            done = lines_of_losses(work_dir) - done
            if moment:
                seconds = seconds_now(seconds, moment, killed, done, last)
            if killed is None:
                break
            phases[killed] += 1
        assert_same_end(work_dir, whole, ranks)
        resumed += log_of(work_dir).count('Resuming from')
        for path in tmp_path.glob('work_*.log'):
            path.unlink()
        shutil.rmtree(work_dir)
    print(
        f'\n{name} on {ranks}: {phases.total()} kills {dict(phases)}, {resumed} resumes, '
        f'{trainings} trainings of {measured[0]:.1f} + {measured[1]:.1f} s, '
        f'{time.monotonic() - begin:.0f} s'
    )


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('ranks', [1, 2])
@pytest.mark.parametrize('name', TRAININGS)
def test_killed_at_twenty_moments(whole_run, tmp_path, name, ranks):
    kill_and_compare(whole_run, tmp_path, name, ranks, KILLS)


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
    _, whole, _ = whole_run(name, 1)
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
