"""The examples for other trainers save and resume the loss."""

import ast
import re

import pytest
from docs_blocks import PAGES, ROOT, blocks, output_of

TUTORIALS = ROOT / 'configs' / 'tutorials'
ACCELERATE = TUTORIALS / 'accelerate_loop.py'

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def run(script, folder, *before):
    """States that the script prints, and its AP."""
    printed = output_of([' '.join(['python', *before, str(script)])], folder)
    states = re.findall(r'^state (\{.*\})$', printed, re.MULTILINE)
    (ap,) = re.findall(r'^AP ([\d.]+)$', printed, re.MULTILINE)
    return [ast.literal_eval(state) for state in states], float(ap)


@pytest.mark.parametrize(
    ('package', 'script'),
    [('lightning', TUTORIALS / 'lightning_loop.py'), ('accelerate', ACCELERATE)],
)
def test_second_run_starts_with_the_state_of_the_first(package, script, tmp_path):
    pytest.importorskip(package)
    (fresh, saved), ap = run(script, tmp_path)
    assert set(fresh) == {
        f'{part}.{key}'
        for part in ('mean_positive', 'imbalance')
        for key in ('mean', 'num_updates')
    }
    assert fresh['mean_positive.num_updates'] == [0]
    assert saved['mean_positive.num_updates'] == [80]
    assert ap > 0.1  # 0.03 are positive
    (resumed, last), _ = run(script, tmp_path)
    # Python prints all digits: equal means equal in every bit.
    assert resumed == saved
    assert last['mean_positive.num_updates'] == [160]


def test_two_processes_equal_one(tmp_path):
    pytest.importorskip('accelerate')
    (_, one), ap = run(ACCELERATE, tmp_path)
    (tmp_path / 'two').mkdir()
    launch = ('-m', 'torch.distributed.run', '--nproc-per-node=2')
    (_, two), ap_of_two = run(ACCELERATE, tmp_path / 'two', *launch, '--standalone')
    assert ap_of_two == pytest.approx(ap, abs=2e-6)
    for key, value in one.items():
        assert two[key] == pytest.approx(value, rel=1e-5)


#: The block of each trainer on the page, and the package that it needs.
ON_THE_PAGE = {
    'lightning': 'lightning',
    'fabric': 'lightning',
    'accelerate': 'accelerate',
    'transformers': 'transformers',
    'ray': 'ray',
}
TWICE = """
for _ in range(2):
    names = dict(__name__='page')
    exec(source, names)
    state = names['loss_function'].state_dict()
    print('updates', int(state['mean_positive.num_updates'].sum()))
"""


@pytest.mark.parametrize('trainer', ON_THE_PAGE)
def test_block_of_the_page_resumes_the_loss(trainer, tmp_path):
    pytest.importorskip(ON_THE_PAGE[trainer])
    page = PAGES / 'trainers.md'
    (start,) = blocks(page, '{.python .start}')
    (block,) = blocks(page, f'{{.python .{trainer}}}')
    script = tmp_path / 'page.py'
    script.write_text(f'source = {start + block!r}\n{TWICE}')
    printed = output_of(['python page.py'], tmp_path)
    assert re.findall(r'^updates (\d+)$', printed, re.MULTILINE) == ['4', '8']
