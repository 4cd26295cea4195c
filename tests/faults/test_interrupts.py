"""Signals end a tool with its own message, wherever they arrive."""

import random
import signal
import time
from pathlib import Path

import pytest
import resume_run
import torch
from tiny_tool_run import TRAIN, start_python, write_config
from training_ends import assert_same

from mmrank import interruption

pytestmark = pytest.mark.skipif(
    not Path('/proc/self/status').exists(), reason='reads from /proc when the handlers are there'
)

ENDLESS = ['--cfg-options', 'train_cfg.max_epochs=1000000']


def wait_for_handlers(process):
    """Wait until Python has started and the tool handles signals."""
    status = Path(f'/proc/{process.pid}/status')
    while True:
        assert process.poll() is None, process.communicate()[0]
        (line,) = (x for x in status.read_text().splitlines() if x[:7] == 'SigCgt:')
        if int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.005)


def wait_for(path, process):
    """Wait until a file is there."""
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def end(process, number):
    """Send a signal; give the seconds until the end, and the output."""
    start = time.monotonic()
    process.send_signal(number)
    output = process.communicate(timeout=120)[0]
    return time.monotonic() - start, output


def assert_in_order(process, number, output):
    """Check the exit status and that no foreign message was written."""
    assert process.returncode == 128 + number, output
    assert 'Interrupted' in output
    for foreign in ('Traceback', 'Error', 'KeyboardInterrupt', 'Exception'):
        assert foreign not in output, output


def test_in_the_imports_of_a_tool_that_goes_on():
    process = start_python(TRAIN.parent / 'research/run_seeds.py', '--help')
    wait_for_handlers(process)
    _, output = end(process, signal.SIGINT)
    assert_in_order(process, signal.SIGINT, output)
    assert 'Run the same command again' in output


@pytest.mark.slow
def test_at_fifty_moments(tmp_path):
    config = write_config(tmp_path, workers=1)
    process = start_python(TRAIN, config, *ENDLESS)
    wait_for_handlers(process)
    start = time.monotonic()
    wait_for(tmp_path / 'work' / 'last_checkpoint', process)
    # Half of the moments before the first checkpoint, half after it.
    longest = 2 * (time.monotonic() - start)
    end(process, signal.SIGKILL)
    draw = random.Random(0)
    seconds = []
    for index in range(50):
        number = draw.choice([signal.SIGINT, signal.SIGINT, signal.SIGTERM])
        options = draw.choice([[], ['--save-on-signal']])
        work = ['--work-dir', tmp_path / f'{index}']
        process = start_python(TRAIN, config, *work, *options, *ENDLESS)
        wait_for_handlers(process)
        time.sleep(draw.uniform(0, longest))
        took, output = end(process, number)
        assert_in_order(process, number, output)
        seconds.append(took)
    print(f'seconds to the end: {sorted(seconds)}')
    assert sorted(seconds)[len(seconds) // 2] < 2


@pytest.mark.slow
def test_two_processes_end_after_the_same_iteration(tmp_path):
    hooks = [{'type': 'SyncBuffersHook'}]
    config = write_config(tmp_path, distributed=True, hooks=hooks)
    launcher = '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node', 2
    options = '--launcher', 'pytorch', '--save-on-signal', *ENDLESS
    process = start_python(*launcher, TRAIN, config, *options)
    wait_for(tmp_path / 'work' / 'last_checkpoint', process)
    # As Slurm sends it; torchrun passes it on to both.
    _, output = end(process, signal.SIGTERM)
    assert output.count('Interrupted. Pass --resume') == 2, output
    steps = {
        (tmp_path / 'work' / f'losses_{rank}.txt').read_text().split()[-2] for rank in range(2)
    }
    assert len(steps) == 1
    last = Path((tmp_path / 'work' / 'last_checkpoint').read_text())
    content = torch.load(last, weights_only=False)
    assert str(content['meta']['iter'] - 1) == steps.pop()
    assert len(content['mmrank_rng_state']['processes']) == 2


WAIT = """
import time
from mmrank import interruption
interruption._SAME_SIGNAL = 2.0  # a busy machine may stand still between two
interruption.end_on_signals()
interruption.defer_signals({defer})
print('ready', flush=True)
while True:
    try:
        time.sleep(0.01)
    except:
        pass
"""


def start_waiting(defer):
    """Start a process with a bare except, as there is below us."""
    process = start_python('-c', WAIT.format(defer=defer))
    assert process.stdout.readline() == 'ready\n'
    return process


@pytest.mark.parametrize('number', interruption.SIGNALS)
def test_bare_except_swallows_nothing(number):
    process = start_waiting(defer=False)
    _, output = end(process, number)
    assert_in_order(process, number, output)


def test_second_signal_ends_at_once():
    process = start_waiting(defer=True)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # as a launcher passes it on
    time.sleep(2.2)
    assert process.poll() is None
    _, output = end(process, signal.SIGINT)
    assert_in_order(process, signal.SIGINT, output)
    assert 'A second signal ends it at once' in output


@pytest.fixture
def signals():
    """Handle signals in this process."""
    interruption.end_on_signals()
    yield
    interruption.restore_signals()


def slow(*values):
    """A case that the default run leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ('options', 'where', 'count', 'saved'),
    [
        ({'iterations': True}, 'iteration', 5, 'iter_5'),
        slow({'iterations': True}, 'iteration', 6, 'iter_6'),
        slow({'iterations': True}, 'validation', 2, 'iter_4'),
        slow({}, 'iteration', 6, 'epoch_2'),
        slow({}, 'validation', 4, 'epoch_2'),
        ({'checkpoint': {'interval': 3}}, 'validation', 4, 'epoch_2'),
        slow({}, 'iteration', 5, 'iter_5'),
    ],
)
def test_saved_checkpoint_resumes(tmp_path, signals, options, where, count, saved):
    whole, work = tmp_path / 'whole', tmp_path / 'work'
    hooks = [
        {'type': 'mmrank.InterruptHook', 'save': True},
        # Before the InterruptHook looks.
        {
            'type': 'KillHook',
            'where': where,
            'count': count,
            'number': signal.SIGINT,
            'priority': 'NORMAL',
        },
    ]
    with pytest.raises(interruption.Interrupted):
        resume_run.train(str(work), {**options, 'hooks': hooks}, None, False)
    interruption.restore_signals()
    pointer = (work / 'last_checkpoint').read_text()
    assert pointer == str(work / f'{saved}.pth')
    resume_run.train(str(work), options, None, True)
    if saved == 'iter_5' and not options:  # mmengine starts the epoch over
        return
    resume_run.train(str(whole), options, None, False)
    ends = [torch.load(folder / 'final_0.pt', weights_only=False) for folder in (work, whole)]
    assert_same(*(end['model'] for end in ends))
