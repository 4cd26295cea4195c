"""Configs of the repository, rows of its plans, and what each of them is for."""

import copy
import re
from functools import cache
from pathlib import Path

from mmengine.config import Config, utils
from mmengine.registry import DATASETS, TRANSFORMS, init_default_scope

from mmrank.runners.config import parsed_options
from plans.config_plan import read_plan

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ROOT / 'configs'
LEAVES = sorted(p for p in FOLDERS.glob('[!_]*/*.py') if p.parent.name != 'tutorials')
# Those of sodeep are sizes of sorters.
PLANS = sorted(p for p in FOLDERS.rglob('*.yaml') if p.parent.name != 'sodeep')

# mmengine reads all metafiles of mmdet again for each config that inherits from mmdet.
utils.load = cache(utils.load)


@cache
def read(path: Path) -> Config:
    """Read a config once; :func:`load` gives copies."""
    return Config.fromfile(path)


def load(path: Path, options: dict[str, str] | None = None) -> Config:
    """Load a config with the overrides that the command line would get."""
    cfg = copy.deepcopy(read(path))
    cfg.merge_from_dict(parsed_options(options or {}))
    return cfg


def without_downloads(cfg):
    """Set random weights in place of published ones, at every depth of a config."""
    if isinstance(cfg, dict):
        start = cfg.get('init_cfg')
        if isinstance(start, dict) and start.get('type') == 'Pretrained':
            cfg['init_cfg'] = None
        for value in cfg.values():
            without_downloads(value)
    elif isinstance(cfg, list | tuple):
        for value in cfg:
            without_downloads(value)


def check_data(cfg: Config) -> None:
    """Build the transforms of each data set of a config, whose type is registered."""
    init_default_scope(cfg.default_scope)
    for name in ('train', 'val', 'test'):
        loader = cfg.get(f'{name}_dataloader')
        for dataset in loader.dataset.get('datasets', [loader.dataset]) if loader else ():
            with DATASETS.switch_scope_and_registry(cfg.default_scope) as known:
                assert known.get(dataset.type) is not None
            for transform in dataset.get('pipeline', ()):
                TRANSFORMS.build(transform)


def rows(plan: Path, set_name: str = '') -> dict[str, tuple[Path, dict[str, str]]]:
    """Config and overrides of each method of a plan, or of a set of it, without what is tuned."""
    methods = read_plan(plan, set_name).methods
    return {x.name: (ROOT / x.config, dict(x.cfg_options)) for x in methods}


def leaves_of_papers() -> set[str]:
    """Leaf configs that a README names, also by ``*`` and ``{a,b}``, as the paper's settings."""
    found = set()
    for path in FOLDERS.glob('*/README.md'):
        _, _, section = path.read_text('utf-8').partition("\n## The paper's settings\n")
        section, _, _ = section.partition('\n## ')
        for name in re.findall(r'([\w*{},.-]+)\.py\b', section):
            words = {'*': '.*', '{': '(', ',': '|', '}': ')'}
            pattern = ''.join(words.get(letter, re.escape(letter)) for letter in name)
            found |= {leaf.stem for leaf in LEAVES if re.fullmatch(pattern, leaf.stem)}
    return found
