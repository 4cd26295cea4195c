"""What every tool says of itself, and of an option that it does not have.

Mistakes in files, configs and values: test_typed_mistakes.py; interrupts: test_interrupts.py.
"""

import pytest
from docs_blocks import ROOT

TOOLS = {
    path.relative_to(ROOT / 'tools').as_posix(): path
    for path in sorted((ROOT / 'tools').rglob('*.py'))
    if "__name__ == '__main__'" in path.read_text('utf-8') and 'tests' not in path.parts
}
#: Tools whose help has an example, and tools whose help has defaults and a command.
WITH_EXAMPLE = ('train.py', 'test.py', 'check_env.py')
WITH_DEFAULTS = (
    *('demo.py', 'analysis_tools/plot_pr_curves.py', 'analysis_tools/draw_detections.py'),
    'dataset_converters/make_shapes_coco.py',
)


@pytest.fixture(params=TOOLS)
def call(request, run_script, monkeypatch):
    """Runs the tool with some words; its name is ``call.name``."""
    path = TOOLS[request.param]
    monkeypatch.syspath_prepend(path.parent)

    def run(*words):
        return run_script(path, *words)

    run.name = request.param
    return run


def test_help(call):
    status, output, errors = call('--help')
    assert status == 0, errors
    assert 'usage: ' in output
    if call.name in WITH_EXAMPLE:
        assert 'example' in output
        # mim passes --gpus on to tools whose help names it.
        assert '--gpus' not in output
    if call.name in WITH_DEFAULTS:
        assert 'default' in output
        assert f'python tools/{call.name}' in output or 'mmrank ' in output


def test_an_unknown_option_is_one_message(call):
    status, _, errors = call('--no-such-option')
    assert status == 2
    assert 'Traceback' not in errors
    assert 'error: ' in errors
    assert '--no-such-option' in errors or 'required' in errors
