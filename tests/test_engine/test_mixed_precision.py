"""mmengine's mixed precision trains with a ranking loss; test_exact_resume.py resumes it."""

import pytest
import torch
from resume_run import run_once
from training_ends import read_losses


@pytest.mark.processes
def test_is_the_training_of_float32_rounded(tmp_path):
    """The wrapper insists on a GPU; ``amp_on_cpu`` takes that check away."""
    options = dict(
        loss={'type': 'mmrank.StableAPLoss', 'mean_mode': 'plain'}, clip_grad={'max_norm': 1.0}
    )
    half = {'type': 'AmpOptimWrapper', 'dtype': 'float16', 'loss_scale': 256.0}
    found = []
    for name, more in (('float16', {'optim_wrapper': half}), ('float32', {})):
        assert run_once(tmp_path / name, {**options, **more}) == 0
        losses = read_losses(tmp_path / name)
        found.append(torch.tensor([float.fromhex(x) for x in losses.values()]))
    assert not torch.equal(*found)
    torch.testing.assert_close(*found, rtol=0.05, atol=0.02)
