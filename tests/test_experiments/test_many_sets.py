"""Comparisons on many sets: the means over them, and the forest that is drawn of their records."""

import sys

import numpy as np
import pytest
from PIL import Image

from mmrank.cli.draw import seeds
from mmrank.errors import UserError
from mmrank.experiments.many_sets import compare_sets, difference_rows, mean_rows, read_sets

# Gains of the sets: 4, 2, -3; the standard error of their mean is 3.606 / sqrt(3).
VALUES = {
    'cells': {'ours': [0.50, 0.52], 'theirs': [0.46, 0.48]},
    'cards': {'ours': [0.40, 0.44], 'theirs': [0.39, 0.41]},
    'eggs': {'ours': [0.70, 0.70], 'theirs': [0.72, 0.74]},
}


@pytest.fixture
def paths(tmp_path):
    for name, values in VALUES.items():
        rows = ['method,seed,settings,mAP']
        for method, own in values.items():
            rows += [f'{method},{seed},{{}},{value}' for seed, value in enumerate(own)]
        (tmp_path / name).mkdir()
        (tmp_path / name / 'runs.csv').write_text('\n'.join([*rows, '']))
    return sorted(map(str, tmp_path.glob('*/runs.csv')))


def test_means_and_intervals(paths):
    sets = read_sets(paths, scale=100)
    assert [*sets] == ['cards', 'cells', 'eggs']
    each, mean = compare_sets(sets, 'ours', 'mAP')
    assert each['theirs']['cells']['difference'] == pytest.approx(4)
    # Paired by seed: 1 and 3, whose mean has the standard error 1.
    assert each['theirs']['cards']['ci_high'] == pytest.approx(2 + 12.706, abs=1e-3)
    assert mean['theirs']['difference'] == pytest.approx(1)
    error = np.std([4, 2, -3], ddof=1) / np.sqrt(3)
    assert mean['theirs']['ci_low'] == pytest.approx(1 - 4.3027 * error, abs=1e-3)
    assert mean_rows(sets, 'mAP')[-1] == ['mean', '54.3', '53.3']
    ((_, shown, median, ahead, worst),) = difference_rows(each, mean)
    assert shown.startswith('+1.00 [-7.9')
    assert [median, ahead, worst] == ['+2.00', '2 of 3, p = 1', 'eggs -3.0']


def test_the_mean_is_paired_by_seed(paths):
    sets = read_sets(paths, scale=100)
    del sets['cells']['theirs']['mAP'][1]
    _, mean = compare_sets(sets, 'ours', 'mAP')
    # 4 of the seed that both have, not 51 - 46.
    assert mean['theirs']['difference'] == pytest.approx((4 + 2 - 3) / 3)
    sets['cells']['theirs']['mAP'].clear()
    with pytest.raises(UserError, match='set cells has no seed with mAP of both ours and theirs'):
        compare_sets(sets, 'ours', 'mAP')


def test_forest(paths, tmp_path, monkeypatch, capsys):
    out = tmp_path / 'forest.png'
    words = ['seeds', *paths, '--scale', '100', '--forest', 'ours', '--out', str(out)]
    monkeypatch.setattr(sys, 'argv', words)
    seeds.main()
    assert '2 of 3' in capsys.readouterr().out
    with Image.open(out) as image:
        # The diamond of the mean is orange.
        assert np.array(image.convert('RGB')).reshape(-1, 3).tolist().count([213, 94, 0]) > 50


def test_records_of_other_plans_are_refused(paths, tmp_path):
    with pytest.raises(UserError, match="no method 'us'"):
        compare_sets(read_sets(paths), 'us', 'mAP')
    with pytest.raises(UserError, match="second set 'cards'"):
        read_sets([*paths, paths[0]])
    other = tmp_path / 'boards.csv'
    other.write_text('method,seed,settings,mAP\nours,0,{},0.5\n')
    with pytest.raises(UserError, match='sets of one plan'):
        read_sets([*paths, other])
