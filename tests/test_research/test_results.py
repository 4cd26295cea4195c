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


@pytest.mark.usefixtures('records')
@pytest.mark.parametrize('block', ['other mAP', 'made AP50', 'made mAP step=7', 'made'])
def test_what_no_record_has_is_refused(block):
    with pytest.raises(UserError, match='Fix: '):
        results.rewritten(f'<!-- record: {block} -->\n<!-- end of record -->\n')
