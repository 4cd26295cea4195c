"""Each loss has its name and its colour in the pictures of all pages."""

import re
from pathlib import Path

import pytest
import yaml

from plans.loss_names import LOSS_STYLES, colours_of, loss_name

PLANS = sorted(Path(__file__).parents[3].glob('configs/*/*.yaml'))


def test_a_loss_has_its_colour_beside_any_other():
    assert colours_of(['focal', 'stable AP']) == [
        LOSS_STYLES['focal'].colour,
        LOSS_STYLES['stable_ap'].colour,
    ]
    assert colours_of(['soprc-0.25'])[0] == LOSS_STYLES['soprc'].colour
    assert colours_of(['centre'])[0] != LOSS_STYLES['ce'].colour


@pytest.mark.parametrize('plan', PLANS, ids=lambda path: path.stem)
def test_methods_of_a_plan_differ(plan):
    names = [
        method['name'] for method in yaml.safe_load(plan.read_text('utf-8')).get('methods', ())
    ]
    names = list(dict.fromkeys(re.sub(r'-[\d.]+$', '', n) for n in names))
    assert len(set(colours_of(names[:20]))) == len(names[:20])


def test_colours_repeat_when_there_are_no_more():
    assert len(colours_of([f'model {i}' for i in range(99)])) == 99


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('rank_sort', 'Rank & Sort'),
        ('stable_ap-0.25', 'stable AP 0.25'),
        ('in-batch', 'in-batch'),
        ('graded_ap_0.6', 'graded AP-Loss, weight 0.6'),
        ('graded AP-Loss, balanced', 'graded AP-Loss, balanced'),
        ('my_loss', 'my_loss'),
    ],
)
def test_losses_in_words(name, words):
    assert loss_name(name) == words
