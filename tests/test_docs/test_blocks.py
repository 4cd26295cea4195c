"""Every fenced block of the documentation runs in a test, or says why not."""

import re

import pytest
from docs_blocks import PAGES, ROOT, all_blocks, documents

README = 'README.md'
START = 'docs/pages/get_started.md'
FEDERATED = 'docs/pages/results/federated.md'
#: Commands that no test runs as they stand: document, a part of the block,
#: and why. Tools and files that they name are checked below.
NOT_RUN = [
    (README, 'make demo', 'minutes; test_demo.py runs its tool'),
    (START, 'make demo', 'minutes; test_demo.py runs its tool'),
    (README, 'bootstrap.py', 'downloads; test_bootstrap.py'),
    (START, 'bootstrap.py', 'downloads; test_bootstrap.py'),
    (README, 'pip install -e', 'installs; test_distribution.py'),
    (START, 'pip install -e', 'installs; test_distribution.py'),
    (START, 'pip wheel', 'conftest.py does the same, in another folder'),
    (START, 'mim train', 'needs openmim and COCO; test_distribution.py'),
    (FEDERATED, 'federated_cost.py', 'a minute; test_theory_tools.py'),
    ('configs/clip/README.md', 'caption_losses', 'data and hours'),
    ('configs/clip/README.md', 'grocery', 'data'),
    ('configs/metric_learning/README.md', 'grocery', 'data'),
    ('configs/long_tail/README.md', 'grocery', 'data'),
    ('configs/in_batch/README.md', 'ratings.dat', 'data'),
    ('configs/in_batch/README.md', '_ml-1m.py\n', 'data and hours'),
    ('configs/in_batch/README.md', '--divergence', 'data and half an hour'),
    ('configs/isogclr/README.md', 'linear_', 'data and days'),
    ('configs/isogclr/README.md', 'temperature_orders.py', 'data and hours'),
    ('configs/long_tail/README.md', 'cifar10_losses', 'data and hours'),
    ('configs/long_tail/README.md', 'positive_rate', 'data and hours'),
    ('configs/sodeep/README.md', 'train_sorter', 'test_sodeep_loss.py'),
    ('configs/soprc/README.md', 'omniglot_losses', 'data and an hour'),
    ('configs/soprc/README.md', 'omniglot_folds', 'data and an hour'),
    ('configs/stable_ap/README.md', 'ap/bccd_seeds', 'data and half an hour'),
    ('configs/stable_ap/README.md', 'dino_bccd_seeds', 'data and an hour'),
    ('configs/stable_ap/README.md', 'bccd_losses', 'data and an hour'),
    ('configs/stable_ap/README.md', 'coco128_losses', 'data and an hour'),
    ('configs/stable_ap/README.md', 'rho/bccd_sgd', 'data and hours'),
]
#: Blocks of READMEs of configs/ that a test below runs.
RUN = [('configs/in_batch/README.md', '_synthetic.py', 'precision@5')]
#: In the language of a block: what it needs that this test has not.
MARK = '.needs-'


def bash_blocks():
    for path in documents():
        name = path.relative_to(ROOT).as_posix()
        for language, text in all_blocks(path):
            if 'bash' in language:
                yield name, language, text


def runs(name, language, text):
    """Whether a test runs the commands."""
    if any(name == x[0] and x[1] in text for x in RUN):
        return True
    users = {path.name for path in (PAGES / 'users').glob('*.md')}
    pages = {f'docs/pages/users/{user}' for user in users}
    pages |= {'docs/pages/scaling.md', 'docs/pages/write_a_loss.md'}
    return '.from-a-wheel' in language or (language == 'bash' and name in pages)


def test_commands_run_or_say_why_not():
    left = [*NOT_RUN]
    for name, language, text in bash_blocks():
        if MARK in language or runs(name, language, text):
            continue
        found = [x for x in left if x[0] == name and x[1] in text]
        assert len(found) == 1, f'{name}: run or explain\n{text}'
        left.remove(found[0])
    assert not left, 'no such block'


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'mark', 'result'), RUN)
def test_block_of_a_readme(name, mark, result, newcomer):
    (text,) = [x for y, _, x in bash_blocks() if y == name and mark in x]
    assert result in newcomer([text])


def test_languages_are_known():
    """Python blocks: test_snippets.py; files that are included: tutorials."""
    known = {'python', 'bash', 'yaml', 'text', ''}
    for path in documents():
        for language, text in all_blocks(path):
            assert language in known or re.fullmatch(r'\{\.(bash|python) \.[\w-]+\}', language), (
                path,
                language,
            )
            if language == 'yaml':
                assert text.startswith('--8<--')


@pytest.mark.parametrize('path', documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_of_commands_are_there(path):
    for language, text in all_blocks(path):
        if 'bash' not in language:
            continue
        for file in re.findall(r'(?<![\w/])(?:configs|tools)/[\w./-]+', text):
            if '.' in file:
                assert (ROOT / file).is_file(), file
