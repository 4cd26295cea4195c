"""Configs of the repository, rows of its plans, and what each of them is for."""

import copy
import fnmatch
import re
from functools import cache
from pathlib import Path

import yaml
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


def _spelled(names: list[str]) -> list[str]:
    """Write out ``{a,b}`` as a shell does."""
    out = []
    for name in names:
        found = re.search(r'\{([^{}]*)\}', name)
        if found is None:
            out.append(name)
            continue
        parts = [name[: found.start()] + x + name[found.end() :] for x in found[1].split(',')]
        out += _spelled(parts)
    return out


def _named(text: str, suffix: str, stems: list[str]) -> list[str]:
    """Those of ``stems`` whose file names, possibly with ``*`` and ``{a,b}``, are in a text."""
    names = _spelled(re.findall(rf'([\w*{{}},.-]+)\.{suffix}\b', text))
    return [stem for stem in stems if any(fnmatch.fnmatch(stem, name) for name in names)]


def reasons() -> dict[str, str]:
    """Say by its stem why a leaf config is kept, as far as there is a reason.

    ``'measured'``: a metafile has its results, or a section of a README with results names it or a
    plan that has it as a row. ``'paper'``: the section "The paper's settings" of a README does.
    """
    leaves = [path.stem for path in LEAVES]
    found = {}
    for path in FOLDERS.glob('*/metafile.yml'):
        for model in yaml.safe_load(path.read_text('utf-8'))['Models']:
            if 'Results' in model:
                found[model['Name']] = 'measured'
    for path in sorted(FOLDERS.glob('*/README.md')):
        for section in re.split(r'^## ', path.read_text('utf-8'), flags=re.MULTILINE)[1:]:
            kind = re.match(r"Result|rho|Images|The paper's settings", section)
            if kind is None:
                continue
            names = _named(section, 'py', leaves)
            for plan in PLANS:
                if _named(section, 'yaml', [plan.stem]):
                    names += [config.stem for config, _ in rows(plan).values()]
            for name in names:
                found.setdefault(name, 'paper' if kind[0].startswith('The') else 'measured')
    return found


def leaves_without_result() -> list[str]:
    """Name the leaf configs that are neither measured nor a paper's setting nor a tutorial."""
    kept = reasons()
    return [path.stem for path in LEAVES if path.stem not in kept]
