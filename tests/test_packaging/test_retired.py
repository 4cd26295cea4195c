"""What a user gets who still names what mmrank had, and no page names it any more."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from mmrank import losses, retired
from mmrank.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
#: Types that mmengine has, too.
NAMES_OF_MMENGINE = ('FSDPStrategy', 'FlexibleRunner')
#: The one page that says what went.
CHANGES = ('CHANGELOG.md', 'mmrank/retired.py', 'tests/test_packaging/test_retired.py')
TEXTS = ('*.md', '*.py', '*.pyi', '*.txt', '*.yml', '*.yaml', '*.sh', '*.toml')
FOLDERS = ('mmrank', 'tools', 'configs', 'docs', '.github', 'requirements')


@pytest.mark.parametrize('name', retired.TYPES)
def test_a_retired_type_of_a_config_says_what_to_do(name):
    registry = pytest.importorskip('mmengine.registry')
    import_module('mmrank.registry')
    root, fix = retired.TYPES[name]
    with pytest.raises(UserError, match=f'mmrank.{name} is gone') as caught:
        getattr(registry, root).build(dict.fromkeys(('type', 'runner_type'), f'mmrank.{name}'))
    assert fix in str(caught.value)


@pytest.mark.parametrize('name', retired.NAMES)
def test_a_retired_name_says_what_to_do(name):
    with pytest.raises(ImportError, match=re.escape(retired.NAMES[name])):
        getattr(losses, name)


@pytest.mark.parametrize(
    'setting', [name for name in retired.SETTINGS if name.partition('.')[0] in losses.__all__]
)
def test_a_retired_setting_of_a_loss_says_what_to_do(setting):
    owner, _, name = setting.partition('.')
    with pytest.raises(TypeError, match=re.escape(retired.SETTINGS[setting])):
        getattr(losses, owner)(**{name: 1})


@pytest.mark.parametrize('name', [n for n in retired.SETTINGS if '.' not in n])
def test_a_retired_setting_of_several_losses_says_what_to_do(name):
    for owner in ('SogCLRLoss', 'ISogCLRLoss', 'BimodalISogCLRLoss', 'SOAPLoss', 'PartialAUCLoss'):
        with pytest.raises(TypeError, match=re.escape(retired.SETTINGS[name])):
            getattr(losses, owner)(9, **{name: 1})


def test_no_page_or_docstring_names_what_is_gone():
    words = {*retired.TYPES, *retired.NAMES} - {*NAMES_OF_MMENGINE}
    words |= {f'mmrank.{name}' for name in NAMES_OF_MMENGINE}
    pattern = re.compile('|'.join(rf'\b{re.escape(word)}\b' for word in words))
    files = [ROOT / 'README.md', ROOT / 'setup.py', ROOT / 'model-index.yml']
    for folder in FOLDERS:
        files += [path for kind in TEXTS for path in (ROOT / folder).rglob(kind)]
    found = []
    for path in sorted(files):
        name = str(path.relative_to(ROOT))
        if name in CHANGES or not path.is_file():
            continue
        lines = path.read_text('utf-8').splitlines()
        found += [f'{name}:{i}: {x.strip()}' for i, x in enumerate(lines, 1) if pattern.search(x)]
    assert not found, '\n'.join(found[:40])
