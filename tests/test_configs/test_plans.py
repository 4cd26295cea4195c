"""The experiments' plans: what they set is there, and budgets are equal."""

from pathlib import Path

import pytest

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')

from research.seeds.plan import load_config, read_plan
from research.seeds.statistics import check_splits

ROOT = Path(__file__).resolve().parents[2]
PLANS = sorted(
    path
    for path in (ROOT / 'configs').rglob('*.yaml')
    if path.parent.name != 'sodeep'  # sizes of sorters
)


@pytest.mark.parametrize('path', PLANS, ids=lambda path: path.stem)
def test_every_method_has_the_same_budget(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = read_plan(path)
    check_splits(plan)
    trials = {len(list(m.choices())) for m in plan.methods if m.grid}
    assert len(trials) <= 1
    for method in plan.methods:
        cfg = load_config(method.config)
        for key in [*method.grid, *method.cfg_options]:
            node = cfg
            for part in key.split('.')[:-1]:
                node = node[int(part) if part.isdigit() else part]
            assert isinstance(node, dict), key
