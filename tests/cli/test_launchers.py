"""The launch scripts with processes that are "machines" or tasks of Slurm."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import slurm_stand_in
import yaml
from gloo_processes import free_port
from tiny_tool_run import environment, write_config
from training_ends import assert_same_run

from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint
from mmrank.runners.launch import _set_slurm_variables

TOOLS = Path(__file__).resolve().parents[2] / 'tools'
EPOCHS = 40
#: Seconds without a word after which a process is taken for lost.
TIMEOUT = 15
OPTIONS = dict(
    distributed=True,
    loss=dict(type='mmrank.StableAPLoss', mean_mode='exact'),
    optimizer=dict(type='mmrank.SUM', lr=0.05, momentum=0.9, s=1.0),
    checkpoint=dict(max_keep_ckpts=2),
    hooks=[dict(type='SyncBuffersHook'), dict(type='mmrank.PreviousWeightsHook')],
    engine=dict(
        train_cfg=dict(by_epoch=True, max_epochs=EPOCHS, val_interval=12),
        env_cfg=dict(dist_cfg=dict(timeout=TIMEOUT)),
        # One step of two processes is an epoch: what a signal saves is its end, and no part is
        # trained on twice.
        train_dataloader=dict(
            dataset=dict(type='NoisyDataset'),
            batch_size=6,
            num_workers=0,
            sampler=dict(type='DefaultSampler', shuffle=True),
        ),
    ),
)


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp('config'), **OPTIONS)


def launch(script, log, *arguments, **variables):
    """Start a launch script; its output is appended to a file."""
    with open(log, 'a') as out:
        return subprocess.Popen(
            ['bash', str(TOOLS / script), *map(str, arguments)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**environment(), 'PYTHON': sys.executable, **variables},
        )


def start_machines(config, work_dir, *options):
    """Two machines with one process each, both this one."""
    words = (config, 1, '--work-dir', work_dir, *options)
    place = dict(NNODES='2', MASTER_ADDR='127.0.0.1', PORT=str(free_port()))
    return [
        launch('dist_train.sh', f'{work_dir}_{rank}.log', *words, **place, NODE_RANK=str(rank))
        for rank in range(2)
    ]


def family(process):
    """A process and its descendants."""
    found = [process.pid]
    for pid in found:
        for children in Path(f'/proc/{pid}/task').glob('*/children'):
            with suppress(OSError):  # it has just ended
                found += map(int, children.read_text().split())
    return found


def send(process, number):
    """Send a signal to all processes of a machine."""
    for pid in family(process):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_for_step(work_dir, step, processes):
    """Wait until the first process has done some steps."""
    losses = work_dir / 'losses_0.txt'
    while not losses.exists() or len(losses.read_text().splitlines()) < step:
        assert all(x.poll() is None for x in processes), logs(work_dir)
        time.sleep(0.01)


def logs(work_dir):
    found = work_dir.parent.glob(f'{work_dir.name}*.log')
    return '\n'.join(x.read_text() for x in found)


@pytest.fixture(scope='module')
def one_machine(config, tmp_path_factory):
    """Work folder of two processes on one machine."""
    work_dir = tmp_path_factory.mktemp('one') / 'work'
    words = (config, 2, '--work-dir', work_dir)
    process = launch('dist_train.sh', f'{work_dir}.log', *words, PORT=str(free_port()))
    assert process.wait() == 0, logs(work_dir)
    return work_dir


def assert_same_end(work_dir, whole):
    """Compare the last checkpoint and all losses, bit by bit."""
    assert_same_run(work_dir, whole, [f'epoch_{EPOCHS}.pth'], ranks=2)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('lost', [0, 1])
@pytest.mark.parametrize('how', ['SIGKILL', 'SIGSTOP'])
def test_a_machine_is_lost(config, one_machine, tmp_path, lost, how):
    """Dead, or silent as one whose network is gone."""
    work_dir = tmp_path / 'work'
    machines = start_machines(config, work_dir)
    wait_for_step(work_dir, 7 + 4 * lost, machines)
    send(machines[lost], getattr(signal, how))
    try:
        assert machines[1 - lost].wait(4 * TIMEOUT)
    finally:
        for machine in machines:
            if machine.poll() is None:
                send(machine, signal.SIGKILL)
                machine.wait()
    assert find_last_whole_checkpoint(work_dir) is not None
    assert not (work_dir / f'epoch_{EPOCHS}.pth').exists()
    machines = start_machines(config, work_dir, '--resume')
    assert [x.wait() for x in machines] == [0, 0], logs(work_dir)
    assert_same_end(work_dir, one_machine)


def command_of_pod(config, work_dir):
    """What the pods of pytorchjob.yaml start, and what the operator tells torchrun of two."""
    job = yaml.safe_load((TOOLS / 'jobs/pytorchjob.yaml').read_text())['spec']
    pods = job['pytorchReplicaSpecs']['Worker']
    elastic = job['elasticPolicy']
    (container,) = pods['template']['spec']['containers']
    assert container['name'] == 'pytorch'
    assert str(container['resources']['limits']['nvidia.com/gpu']) == job['nprocPerNode']
    assert elastic['minReplicas'] == elastic['maxReplicas'] == pods['replicas']
    words = dict(torchrun=f'{sys.executable} -m torch.distributed.run')
    words |= {'tools/train.py': TOOLS / 'train.py', '/mmrank/work_dirs/job': work_dir}
    words['configs/tutorials/long_tail.py'] = config
    env = dict(
        PET_RDZV_BACKEND=elastic['rdzvBackend'],
        PET_RDZV_ENDPOINT=f'localhost:{free_port()}',
        PET_MAX_RESTARTS=str(elastic['maxRestarts']),
        PET_NPROC_PER_NODE='2',
        # Of gloo, see dist_train.sh.
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE='1',
    )
    return ' '.join(str(words.get(x, x)) for x in container['command']).split(), env


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('by', ['dist_train.sh', 'pytorchjob.yaml'])
def test_torchrun_starts_a_killed_process_again(by, config, one_machine, tmp_path):
    work_dir = tmp_path / 'work'
    command, env = command_of_pod(config, work_dir)
    if by == 'dist_train.sh':
        place = f'--rdzv-endpoint=localhost:{free_port()}'
        options = '--max-restarts=1', '--rdzv-backend=c10d', place, '--resume'
        command = ['bash', TOOLS / by, config, '2', '--work-dir', work_dir, *options]
        env = dict(PYTHON=sys.executable)
    with open(f'{work_dir}.log', 'w') as out:
        agent = subprocess.Popen(command, env={**environment(), **env}, stdout=out, stderr=out)
    wait_for_step(work_dir, 13, [agent])
    worker = next(
        x for x in family(agent)[1:] if 'train.py' in Path(f'/proc/{x}/cmdline').read_text()
    )
    os.kill(worker, signal.SIGKILL)
    assert agent.wait() == 0, logs(work_dir)
    assert_same_end(work_dir, one_machine)


@pytest.mark.slow
@pytest.mark.processes
def test_slurm(config, one_machine, tmp_path):
    work_dir = tmp_path / 'work'
    log = f'{work_dir}.log'
    size = dict(GPUS='2', GPUS_PER_NODE='1', SRUN_ARGS='--gres=none')
    size |= dict(PATH=slurm_stand_in.install(tmp_path / 'bin'), MASTER_PORT=str(free_port()))
    words = ('cpu', 'tiny', config)
    task = launch('slurm_train.sh', log, *words, work_dir, **size)
    assert task.wait() == 0, logs(work_dir)
    assert_same_end(work_dir, one_machine)
    words += (work_dir / f'epoch_{EPOCHS}.pth', '--cfg-options', 'log_level=INFO')
    task = launch('slurm_test.sh', log, *words, **size)
    assert task.wait() == 0, logs(work_dir)
    assert 'distance: ' in logs(work_dir)


@pytest.mark.slow
@pytest.mark.processes
def test_a_job_of_slurm_is_queued_again(config, one_machine, tmp_path):
    path = slurm_stand_in.install(tmp_path / 'bin')
    work_dir = tmp_path / 'work'
    container = tmp_path / 'bin' / 'container'
    container.write_text('#!/bin/sh\nexec "$@"\n')
    container.chmod(0o755)
    env = dict(
        PATH=path, PYTHON=sys.executable, CONTAINER='container', MASTER_PORT=str(free_port())
    )
    with open(f'{work_dir}.log', 'w') as out:
        job = subprocess.Popen(
            ['sbatch', 'tools/jobs/slurm_requeue.sh', config, work_dir],
            env={**environment(), **env},
            cwd=TOOLS.parent,
            stdout=out,
            stderr=out,
        )
    wait_for_step(work_dir, 11, [job])
    srun = next(x for x in family(job) if 'bin/srun' in Path(f'/proc/{x}/cmdline').read_text())
    os.kill(srun, signal.SIGTERM)
    assert job.wait() == 0, logs(work_dir)
    assert logs(work_dir).count('queued again') == 1
    assert logs(work_dir).count('starting over') == 2  # the two processes of the first life
    assert_same_end(work_dir, one_machine)


def test_slurm_variables(monkeypatch, tmp_path):
    for name in ('MASTER_ADDR', 'MASTER_PORT', 'RANK', 'WORLD_SIZE'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('LOCAL_RANK', '0')  # as the tools set it
    monkeypatch.setenv('PATH', slurm_stand_in.install(tmp_path / 'bin'))
    monkeypatch.setenv('SLURM_NODELIST', 'node[1-2]')
    for name, value in (('PROCID', 5), ('NTASKS', 8), ('LOCALID', 1)):
        monkeypatch.setenv(f'SLURM_{name}', str(value))
    _set_slurm_variables()
    names = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')
    found = [os.environ[name] for name in names]
    assert found == ['5', '8', '1', 'localhost', '29500']
