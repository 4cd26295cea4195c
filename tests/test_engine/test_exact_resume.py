"""A killed and resumed training equals one that ran through, bit by bit."""

import random
import signal

import pytest
import resume_run
import torch
from forked_processes import process_context
from training_ends import assert_same, read_losses

SGD = {}
ADAM = {'optimizer': {'type': 'AdamW', 'lr': 0.05}}
WORKERS = {**ADAM, 'workers': 2}
ACCUMULATE = {'accumulate': 2}  # 3 iterations an epoch: odd epochs cut it
ITERATIONS = {'iterations': True}
KEEP_ONE = {'checkpoint': {'max_keep_ckpts': 1, 'save_best': 'distance', 'rule': 'less'}}
STABLE_AP = {
    'loss': {'type': 'mmrank.StableAPLoss', 'mean_mode': 'plain'},
    'optimizer': {'type': 'mmrank.SUM', 'lr': 0.05, 'momentum': 0.9, 's': 1.0},
}
FLEXIBLE = {
    **KEEP_ONE,
    'engine': {
        'runner_type': 'mmrank.FlexibleRunner',
        'strategy': {'type': 'SingleDeviceStrategy'},
    },
}
EXACT_MEAN = {
    **STABLE_AP,
    'loss': {'type': 'mmrank.StableAPLoss', 'mean_mode': 'exact'},
    'hooks': [{'type': 'mmrank.PreviousWeightsHook'}],
}


@pytest.fixture(scope='module')
def processes():
    """A server that forks clean processes with everything imported."""
    return process_context()


def run(processes, work_dir, options, kill=None, resume=False) -> int:
    """Run a training in a process of its own; give its exit status."""
    process = processes.Process(
        target=resume_run.train, args=(str(work_dir), options, kill, resume)
    )
    process.start()
    process.join(120)
    return process.exitcode


@pytest.fixture(scope='module')
def uninterrupted(processes, tmp_path_factory):
    """Give the end of the run that is not interrupted, made once."""
    made = {}

    def make(options):
        key = repr(options)
        if key not in made:
            made[key] = tmp_path_factory.mktemp('whole')
            assert run(processes, made[key], options) == 0
        return made[key]

    return make


def assert_same_end(work_dir, whole, options) -> None:
    """Compare the ends and the logs of two trainings."""
    states = [torch.load(folder / 'final_0.pt', weights_only=False) for folder in (work_dir, whole)]
    if 'loss' in options:
        assert 'loss.mean_positive.mean' in states[0]['model']
    assert_same(*states)
    losses = read_losses(work_dir, 0)
    assert len(losses) == (8 if options.get('distributed') else 12)
    assert losses == read_losses(whole, 0)
    assert not list(work_dir.glob('.*.tmp'))


def check(processes, whole, work_dir, options, kills) -> None:
    """Kill, resume, kill again, ..., and compare with the ``whole`` run."""
    for index, kill in enumerate(kills):
        status = run(processes, work_dir, options, kill, resume=index > 0)
        assert status == -signal.SIGKILL
    assert run(processes, work_dir, options, resume=True) == 0
    assert_same_end(work_dir, whole, options)


def iteration_kills(seed: int, times: int = 1) -> list[tuple[str, int]]:
    """Draw moments of the 12 iterations; later ones count from a resume."""
    draw = random.Random(seed)
    return [('iteration', draw.randint(1, 12))] + [
        ('iteration', draw.randint(1, 3)) for _ in range(times - 1)
    ]


def slow(*values, name):
    """A case that the default run leaves out."""
    return pytest.param(*values, id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ('options', 'kills'),
    [
        slow(SGD, iteration_kills(0), name='sgd'),
        slow(SGD, [('iteration', 1)], name='before-first-checkpoint'),
        slow(SGD, [('validation', 5)], name='in-validation'),
        slow(ADAM, [('half', 2)], name='half-written'),
        slow(ADAM, [('whole', 3)], name='before-rename'),
        slow(ADAM, [('pointer', 2)], name='before-pointer'),
        pytest.param(KEEP_ONE, [('half', 3)], id='keep-one-half-written'),
        slow(KEEP_ONE, [('validation', 10)], name='keep-one-last-val'),
        slow(KEEP_ONE, [('iteration', 8)], name='keep-one-best-saved'),
        slow(WORKERS, [('iteration', 8)], name='workers'),
        slow(ACCUMULATE, [('iteration', 5)], name='accumulate'),
        slow(ITERATIONS, [('iteration', 8)], name='by-iteration'),
        slow(STABLE_AP, [('iteration', 7)], name='stable-ap-sum'),
        pytest.param(EXACT_MEAN, [('iteration', 8)], id='stable-ap-exact'),
        slow(FLEXIBLE, [('iteration', 8)], name='flexible-runner'),
    ],
)
def test_resume_is_exact(processes, uninterrupted, tmp_path, options, kills):
    check(processes, uninterrupted(options), tmp_path, options, kills)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(8))
@pytest.mark.parametrize(
    'options',
    [SGD, KEEP_ONE, WORKERS, ACCUMULATE, ITERATIONS, EXACT_MEAN],
    ids=['sgd', 'keep-one', 'workers', 'accumulate', 'by-iteration', 'stable-ap-exact'],
)
def test_resume_is_exact_after_many_kills(processes, uninterrupted, tmp_path, options, seed):
    kills = iteration_kills(seed, times=1)
    if kills[0][1] < 8:
        kills.append(('iteration', 2))
    check(processes, uninterrupted(options), tmp_path, options, kills)


@pytest.mark.slow
def test_resume_is_exact_with_two_processes(processes, tmp_path):
    options = {
        'distributed': True,
        'workers': 1,
        'checkpoint': {'max_keep_ckpts': 1},
        # mmengine saves the batch norm statistics of the first process only.
        'hooks': [{'type': 'SyncBuffersHook'}],
    }

    def run_both(*arguments, **settings):
        return resume_run.run_ranks(processes, 2, *arguments, **settings)

    whole, work_dir = tmp_path / 'whole', tmp_path / 'resumed'
    assert run_both(whole, options) == [0, 0]
    assert 0 not in run_both(work_dir, options, ('iteration', 5))
    assert run_both(work_dir, options, resume=True) == [0, 0]
    assert_same_end(work_dir, whole, options)
    assert read_losses(work_dir, 1) == read_losses(whole, 1)
    losses = [read_losses(whole, rank) for rank in range(2)]
    assert losses[0] != losses[1]
