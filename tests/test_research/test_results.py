"""Tables of pages come from the records of their trainings."""

import pytest

from mmrank.errors import UserError
from research import results

RECORD = """method,seed,step,commit,seconds,mAP
focal,0,10,abc,1800,0.10
focal,1,10,abc,1800,0.20
ours,0,10,abc,1800,0.15
ours,1,10,abc,1800,0.27
ours,1,5,abc,1800,0.01
"""


@pytest.fixture
def records(tmp_path, monkeypatch):
    (tmp_path / 'made.csv').write_text(RECORD, encoding='utf-8')
    monkeypatch.setattr(results, 'RECORDS', tmp_path)


def test_pages_equal_their_records(monkeypatch, capsys):
    monkeypatch.setattr('sys.argv', ['results.py', '--check'])
    results.main()
    assert 'no tables differ' in capsys.readouterr().out


@pytest.mark.usefixtures('records')
def test_a_table_is_made_of_its_record():
    page = 'before\n<!-- record: made mAP baseline=focal -->\nold\n<!-- end of record -->\nafter\n'
    text = results.rewritten(page)
    assert text == results.rewritten(text)
    assert 'old' not in text
    assert text.endswith('<!-- end of record -->\nafter\n')
    first, second = (x for x in text.splitlines() if x.startswith(('| ours', '| focal')))
    # Differences 5 and 7 points: 6 +- 12.71 * sqrt(2) / sqrt(2), by the table of t.
    assert first == '| ours | 2 | **21.00 ± 8.49** | +6.00 [-6.71, +18.71] |'
    assert second == '| focal | 2 | 15.00 ± 7.07 |  |'
    assert '4 trainings, 2.0 core-hours, commit abc; 2 pairs' in text


def test_differences_that_several_comparisons_leave(records, tmp_path):
    """P of 0.0001, 0.035 and 0.5 by scipy's t test beside 0.05/3, 0.05/2 and 0.05."""
    gaps = {'far': (9, 10, 11, 10), 'near': (1, 4, 2, 4), 'level': (-2, 1, 3, 1)}
    rows = [f'base,{seed},1,a,1,{{}},final,0.2' for seed in range(4)]
    for name, own in gaps.items():
        rows += [f'{name},{i},1,a,1,{{}},final,{0.2 + gap / 100}' for i, gap in enumerate(own)]
    rows += ['base,9,1,a,1,{},tune,0.9']
    head = 'method,seed,step,commit,seconds,settings,stage,mAP'
    (tmp_path / 'made.csv').write_text('\n'.join([head, *rows]) + '\n')
    text = results.rewritten('<!-- record: made mAP -->\n<!-- end of record -->\n')
    last = {line.split(' | ')[0]: line.split(' | ')[-1] for line in text.splitlines()}
    assert last['| far'].startswith('**+10.00')
    assert last['| near'].startswith('+2.75 [+0.36')
    assert '3 comparisons' in text
    assert '1 trials to tune each' in text


def test_a_picture_is_of_its_record(records, tmp_path):
    """It is drawn when its rows are others; the check says so and draws nothing."""
    page = '<!-- record: made mAP boxes=a/b.png -->\n<!-- end of record -->\n'
    assert 'is of other rows' in results.rewritten(page, tmp_path)
    text = results.rewritten(page, tmp_path, check=False)
    assert results.rewritten(text, tmp_path) == text
    (tmp_path / 'made.csv').write_text(RECORD.replace('0.27', '0.28'))
    assert 'is of other rows' in results.rewritten(text, tmp_path)


@pytest.mark.usefixtures('records')
@pytest.mark.parametrize('block', ['other mAP', 'made AP50', 'made mAP step=7', 'made'])
def test_what_no_record_has_is_refused(block):
    with pytest.raises(UserError, match='Fix: '):
        results.rewritten(f'<!-- record: {block} -->\n<!-- end of record -->\n')
