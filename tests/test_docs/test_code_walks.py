"""The way from scores to a gradient is the one that the page shows."""

import re

import torch
from walks import ROOT, entered

from mmrank.losses import StableAPLoss

PAGE = ROOT.parent / 'docs/pages/code_walks.md'
STEP = re.compile(r'^\| \d \| `([\w/]+\.py)` `(\w+)`', re.MULTILINE)


def test_a_step_of_stable_ap():
    shown = PAGE.read_text('utf-8').split('## From a COCO file')[0]
    steps = STEP.findall(shown)
    assert len(steps) == 7
    loss = StableAPLoss(num_classes=80)
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(4000, 80, generator=g, requires_grad=True)
    labels = torch.randint(0, 2000, (4000,), generator=g).clamp(max=80)
    calls = entered(lambda: loss(scores, labels).backward())
    places = [calls.index(step) for step in steps]
    assert places == sorted(places)


def test_functions_of_the_other_way_exist():
    shown = PAGE.read_text('utf-8').split('## From a COCO file')[1]
    steps = STEP.findall(shown)
    assert len(steps) == 7
    for path, name in steps:
        assert re.search(rf'^ *def {name}\(', (ROOT / path).read_text('utf-8'), re.MULTILINE)
