"""A killed and resumed training equals one that ran through, bit by bit."""

import signal

import pytest
import torch
from resume_run import run_once
from training_ends import assert_same, read_losses

SGD = {}
ADAM = {'optimizer': {'type': 'AdamW', 'lr': 0.05}}
WORKERS = {**ADAM, 'workers': 2}
#: 3 iterations an epoch: odd epochs cut an accumulation.
ACCUMULATE = {'accumulate': 2, 'checkpoint': {'interval': 2}}
ITERATIONS = {'iterations': True}
KEEP_ONE = {'checkpoint': {'max_keep_ckpts': 1, 'save_best': 'distance', 'rule': 'less'}}
STABLE_AP = {
    'loss': {'type': 'mmrank.StableAPLoss', 'mean_mode': 'plain'},
    'optimizer': {'type': 'mmrank.SUM', 'lr': 0.05, 'momentum': 0.9, 's': 1.0},
}
#: So large a scale that the first steps overflow in float16 and are skipped.
SCALE = 2.0**24
AMP = {
    f'AmpOptimWrapper-{dtype}': {
        'loss': {'type': 'mmrank.StableAPLoss', 'mean_mode': 'plain'},
        'clip_grad': {'max_norm': 1.0},
        'optim_wrapper': {
            'type': 'AmpOptimWrapper',
            'dtype': dtype,
            'loss_scale': {'init_scale': SCALE, 'growth_interval': 2},
        },
    }
    for dtype in ('float16', 'bfloat16')
}
EXACT_MEAN = {
    **STABLE_AP,
    'loss': {'type': 'mmrank.StableAPLoss', 'mean_mode': 'exact'},
    'hooks': [{'type': 'mmrank.PreviousWeightsHook'}],
}


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    """Give the end of the run that is not interrupted, made once."""
    made = {}

    def make(options):
        key = repr(options)
        if key not in made:
            made[key] = tmp_path_factory.mktemp('whole')
            assert run_once(made[key], options) == 0
        return made[key]

    return make


def slow(*values, name):
    return pytest.param(*values, id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ('options', 'kill'),
    [
        slow(SGD, ('iteration', 7), name='sgd'),
        slow(SGD, ('iteration', 1), name='before-first-checkpoint'),
        slow(SGD, ('validation', 5), name='in-validation'),
        slow(ADAM, ('half', 2), name='half-written'),
        slow(ADAM, ('whole', 3), name='before-rename'),
        slow(ADAM, ('pointer', 2), name='before-pointer'),
        pytest.param(KEEP_ONE, ('half', 3), id='keep-one-half-written'),
        pytest.param(KEEP_ONE, ('pointer', 6), id='keep-one-last-best-is-left'),
        slow(KEEP_ONE, ('validation', 10), name='keep-one-last-val'),
        slow(KEEP_ONE, ('iteration', 8), name='keep-one-best-saved'),
        slow(WORKERS, ('iteration', 8), name='workers'),
        slow(ACCUMULATE, ('iteration', 9), name='accumulate'),
        slow(ITERATIONS, ('iteration', 8), name='by-iteration'),
        slow(STABLE_AP, ('iteration', 7), name='stable-ap-sum'),
        pytest.param(EXACT_MEAN, ('iteration', 8), id='stable-ap-exact'),
        *(slow(options, ('iteration', 8), name=name) for name, options in AMP.items()),
    ],
)
def test_resume_is_exact(uninterrupted, tmp_path, options, kill):
    whole = uninterrupted(options)
    assert run_once(tmp_path, options, kill) == -signal.SIGKILL
    assert run_once(tmp_path, options, resume=True) == 0
    states = [torch.load(folder / 'final_0.pt', weights_only=False) for folder in (tmp_path, whole)]
    if 'loss' in options:
        assert 'loss.mean_positive.mean' in states[0]['model']
    if 'optim_wrapper' in options:
        # Doubled every second step, halved where one overflows.
        scale = states[0]['optimizer']['loss_scaler']['scale']
        assert (scale < SCALE) == (options['optim_wrapper']['dtype'] == 'float16'), scale
        assert scale != SCALE
    assert_same(*states)
    losses = read_losses(tmp_path)
    assert len(losses) == 12
    assert losses == read_losses(whole)
    names = [{x.name for x in folder.glob('*.pth')} for folder in (tmp_path, whole)]
    assert names[0] == names[1]
    assert not list(tmp_path.glob('.*.tmp'))
