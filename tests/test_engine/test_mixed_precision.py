"""mmengine's mixed precision trains, and resumes bit by bit after a kill.

The wrappers insist on a GPU; ``amp_on_cpu`` takes that check away. What they do besides is theirs:
autocast, scaling, skipped steps, the scaler's state.
"""

import pytest
import resume_run
import torch
from forked_processes import process_context
from training_ends import assert_same, read_losses

pytestmark = pytest.mark.processes

#: So large a scale that the first steps overflow in float16 and are skipped.
SCALE = 2.0**24
KINDS = {
    'AmpOptimWrapper': {},
    'mmrank.GradCacheAmpOptimWrapper': {'chunk': 2, 'batch_norm': 'chunk'},
}


def options(kind, dtype, **others):
    """A ranking loss with state, in mixed precision."""
    return dict(
        loss={'type': 'mmrank.StableAPLoss', 'mean_mode': 'plain'},
        clip_grad={'max_norm': 1.0},
        optim_wrapper=dict(
            type=kind,
            dtype=dtype,
            loss_scale={'init_scale': SCALE, 'growth_interval': 2},
            **KINDS[kind],
        ),
        **others,
    )


def run(work_dir, options, kill=None, resume=False):
    """Train in a process of its own; give its exit status."""
    process = process_context().Process(
        target=resume_run.train, args=(str(work_dir), options, kill, resume)
    )
    process.start()
    process.join(120)
    return process.exitcode


def end(work_dir):
    """What a training ended with."""
    return torch.load(work_dir / 'final_0.pt', weights_only=False)


def losses(work_dir):
    """Losses by iteration, as numbers."""
    found = read_losses(work_dir)
    return [float.fromhex(found[key]) for key in sorted(found, key=int)]


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['AmpOptimWrapper', 'mmrank.GradCacheAmpOptimWrapper'])
@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
def test_resumes_after_a_kill(tmp_path, kind, dtype):
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'
    setting = options(kind, dtype)
    assert run(whole, setting) == 0
    scaler = end(whole)['optimizer']['loss_scaler']
    # Doubled every second step, halved where one overflows.
    assert (scaler['scale'] < SCALE) == (dtype == 'float16'), scaler
    assert scaler['scale'] != SCALE
    assert run(killed, setting, ('iteration', 8)) != 0
    assert run(killed, setting, resume=True) == 0
    assert_same(end(killed), end(whole))
    assert read_losses(killed) == read_losses(whole)


def test_is_the_training_of_float32_rounded(tmp_path):
    found = {}
    for dtype in ('float16', 'float32'):
        setting = options('AmpOptimWrapper', dtype)
        setting['optim_wrapper']['loss_scale'] = 256.0
        if dtype == 'float32':
            del setting['optim_wrapper']
        assert run(tmp_path / dtype, setting) == 0
        found[dtype] = torch.tensor(losses(tmp_path / dtype))
    assert not torch.equal(*found.values())
    torch.testing.assert_close(*found.values(), rtol=0.05, atol=0.02)
