"""Commands and logs of the user pages.

The commands of a user page run in an empty folder, with mmrank from a wheel (conftest.py). Those of
the fast pages run by default, too, from the checkout.
"""

import ast
import re

import pytest
from docs_blocks import PAGES, ROOT, blocks, output_of

TUTORIALS = ROOT / 'configs' / 'tutorials'
#: User page, the figure that its output ends with, and the least value.
FAST = [('pytorch', r'stable AP: +AP ([\d.]+)', 0.75)]
SLOW = [
    ('recommendation', r'top_k/precision@5: ([\d.]+)', 18),
    ('detector', r'coco/bbox_mAP_50: ([\d.]+)', 0.05),
    ('false_alarms', r'coco/recall@threshold: ([\d.]+)', 0.01),
    ('retrieval', r'retrieval/mAP: ([\d.]+)', 80),
    ('rare_classes', r'ClassCountsHook: (\d+) classes', 3),
    ('long_tail', r'ranking/mAP: ([\d.]+)', 30),
    ('self_supervised', r'retrieval/mAP: ([\d.]+)', 30),
    ('image_text', r'TR@5: ([\d.]+)', 20),
    ('other_detectors', r'mAP: ([\d.]+)', 0.02),
    ('sentence_transformers', r'stable AP: Recall@1 ([\d.]+)', 0.25),
    ('comparing_losses', r'report\.md', None),
]


def check_page(name, pattern, least, run):
    page = PAGES / 'users' / f'{name}.md'
    output = run(blocks(page, 'bash'))
    found = re.findall(pattern, output)
    assert found, output[-2000:]
    if least is not None:
        assert float(found[-1]) >= least
    # The log of the page names nothing that the output lacks.
    log = '\n'.join(blocks(page, 'text'))
    for key in set(re.findall(r'([\w/@]+): +(?:AP )?[-\d]', log)):
        assert f'{key}:' in output, key


@pytest.mark.processes
@pytest.mark.parametrize(('name', 'pattern', 'least'), FAST)
def test_page_runs(name, pattern, least, folder):
    check_page(name, pattern, least, lambda x: output_of(x, folder))


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'pattern', 'least'), FAST + SLOW)
def test_newcomer_runs(name, pattern, least, newcomer):
    pytest.importorskip('mmdet')
    pytest.importorskip('mmpretrain')
    if name == 'sentence_transformers':
        # Its trainer needs it.
        pytest.importorskip('datasets')
    check_page(name, pattern, least, newcomer)


def test_every_user_page_runs():
    pages = {path.stem for path in (PAGES / 'users').glob('*.md')}
    assert pages == {name for name, _, _ in FAST + SLOW}


ACCELERATE = TUTORIALS / 'accelerate_loop.py'


def run(script, folder, *before):
    """States that the script prints, and its AP."""
    printed = output_of([' '.join(['python', *before, str(script)])], folder)
    states = re.findall(r'^state (\{.*\})$', printed, re.MULTILINE)
    (ap,) = re.findall(r'^AP ([\d.]+)$', printed, re.MULTILINE)
    return [ast.literal_eval(state) for state in states], float(ap)


@pytest.mark.slow
@pytest.mark.processes
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


@pytest.mark.slow
@pytest.mark.processes
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
