"""Live progress with and without a terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from lib.common.live_progress import LiveProgressHook


@pytest.mark.parametrize('is_terminal', [True, False])
def test_progress_shows_iteration_and_loss(is_terminal):
    text = io.StringIO()
    console = Console(file=text, force_terminal=is_terminal, width=100)
    hook = LiveProgressHook('twin', console)
    runner = SimpleNamespace(iter=2, max_iters=5)
    hook.before_train(runner)
    for runner.iter in (2, 3, 4):
        hook.after_train_iter(runner, 0, None, {'loss': 0.25})
    hook.before_val(runner)
    hook.after_train(runner)
    shown = text.getvalue()
    assert 'continues at iteration 2 of 5' in shown
    assert 'twin' in shown
    assert '5/5' in shown
    if not is_terminal:
        assert 'loss 0.250' in shown
        assert 'evaluating' in shown
