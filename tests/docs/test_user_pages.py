"""Commands and logs of the user pages.

The commands of a user page run in an empty folder, with mmrank from a wheel (conftest.py). Those of
the fast pages run by default, too, from the checkout.
"""

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


#: The block of each trainer on the page, or its script, and the package that it needs.
TRAINERS = {
    'lightning': 'lightning',
    'fabric': 'lightning',
    'accelerate': 'accelerate',
    'transformers': 'transformers',
    'ray': 'ray',
    'lightning_loop.py': 'lightning',
    'accelerate_loop.py': 'accelerate',
}
TWICE = """
for _ in range(2):
    names = dict(__name__='page')
    exec(source, names)
    loss = names['loss_function'] if 'loss_function' in names else names['model'].loss
    print('updates', int(loss.state_dict()['mean_positive.num_updates'].sum()))
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize('trainer', TRAINERS)
def test_a_second_run_starts_with_the_state_of_the_first(trainer, tmp_path):
    pytest.importorskip(TRAINERS[trainer])
    if trainer.endswith('.py'):
        source = (TUTORIALS / trainer).read_text('utf-8')
    else:
        page = PAGES / 'trainers.md'
        (start,) = blocks(page, '{.python .start}')
        (block,) = blocks(page, f'{{.python .{trainer}}}')
        source = start + block
    (tmp_path / 'page.py').write_text(f'source = {source!r}\n{TWICE}')
    printed = output_of(['python page.py'], tmp_path)
    first, second = (int(x) for x in re.findall(r'^updates (\d+)$', printed, re.MULTILINE))
    assert second == 2 * first > 0
    if trainer.endswith('.py'):
        # Python prints all digits: equal means equal in every bit.
        _, saved, resumed, _ = re.findall(r'^state (\{.*\})$', printed, re.MULTILINE)
        assert resumed == saved
        assert float(re.findall(r'^AP ([\d.]+)$', printed, re.MULTILINE)[0]) > 0.1  # 0.03: chance
