"""The frozen comparison against whole trainings."""

import pytest

import fast_and_slow
from fast_and_slow import Compared, chance_of


def test_correlation_and_what_following_costs():
    slow = dict(a={'1': 10.0, '2': 12.0}, b={'1': 20.0, '2': 20.0}, c={'1': 15.0, '2': 15.0})
    fast = dict(a={'1': 1.0, '2': 1.5}, b={'1': 2.0, '2': 2.9}, c={'1': 3.0, '2': 3.5})
    item = Compared('x', 'a', 'b', slow, fast)
    # b is ours, and level with c.
    assert item.choices() == ('b', 'c', 'a', 'b')
    assert item._replace(ours='a').followed == 'c'
    assert item.correlations() == (pytest.approx(0.5), pytest.approx(1 / 3))
    assert [item.lost(name) for name in ('c', 'a', 'b')] == [5.0, 9.0, 0.0]


def test_the_chance_of_an_agreement_by_luck():
    assert chance_of(1.0, [3]) == pytest.approx(1 / 6)
    assert chance_of(1.0, [3, 4]) == pytest.approx(1 / 6 / 24)
    assert chance_of(-1.0, [3] * 3) == 1
    assert chance_of(0.75, [3, 3]) == pytest.approx(5 / 36)  # 1 and 1, 1 and 0.5 twice each


def test_the_table_has_a_row_for_each_set_that_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_and_slow, 'RECORDS', tmp_path)
    for name, step in (('real_heads_cards', 0.1), ('frozen_heads_cards', 0.2)):
        lines = ['method,seed,step,commit,seconds,settings,coco/bbox_mAP']
        methods = ('focal', 'graded_ap_0.6', 'quality_focal_2', 'rank_sort_0.6')
        for place, method in enumerate(methods):
            for seed in (100, 101):
                value = 0.3 + step * place + 0.01 * (seed - 100) * place
                lines.append(f'{method},{seed},9,abc,1,{{}},{value}')
        (tmp_path / f'{name}.csv').write_text('\n'.join(lines) + '\n')
    text = fast_and_slow.table()
    (row,) = [line for line in text.splitlines() if 'playing cards' in line]
    assert '+1.0 (+1.0)' in row
    assert 'Rank & Sort, weight 0.6 61.50, quality focal, weight 2 51.00' in row
    assert '+31.50 [' in row
    assert 'ATSS (2 seeds)' in row
    assert 'in 4% of all cases' in text
