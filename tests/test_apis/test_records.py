"""A record is written whole and by the names of its columns, and refused where it is damaged."""

import csv
import multiprocessing

import pytest

from mmrank.apis.common.records import append_rows, past_rows, read_rows, write_rows
from mmrank.errors import UserError
from training_plan import Record, TrainingPlan

FIELDS = ('method', 'seed', 'step', 'settings', 'AP', 'mAP')
WHOLE = """method,seed,step,settings,AP,mAP
a,0,10,{},0.125,0.25
"b, c",0,10,"{""lr"": 1}",,0.5
"""
#: What damages a record, and words of the message.
DAMAGE = {
    'torn': (WHOLE.rstrip(), 'line 3 is torn', 'no end'),
    'torn in quotes': (WHOLE[: WHOLE.index('1}')], 'line 3 is torn'),
    'torn number': (WHOLE + 'a,1,10,{},0.3,0.3', 'line 4 is torn'),
    'few values': (WHOLE + 'a,1,10,{},0.3\n', 'line 4', '5 values for 6 columns'),
    'glued': (WHOLE + 'a,1,10,{},0.3,0.3a,2,10,{},0.3,0.3\n', 'line 4', '11 values'),
    'nan': (WHOLE.replace('0.25', 'nan'), "line 2: mAP='nan' of 'a' is not finite"),
    'inf': (WHOLE.replace('0.125', '-inf'), "line 2: AP='-inf'"),
    'text': (WHOLE.replace('0.25', '0.2.5'), "line 2: mAP='0.2.5' of 'a' is not a number"),
    'seed': (WHOLE.replace('a,0', 'a,0.5'), "seed='0.5'"),
    'no seed': (WHOLE.replace('a,0', 'a,'), "seed='' of 'a' is empty"),
    'no method': (WHOLE.replace('a,0', ',0'), "method='' of '' is empty"),
    'settings': (WHOLE.replace('{}', '{'), "settings='{'", 'not JSON'),
    'list': (WHOLE.replace('{}', '[]'), "settings='[]'", 'not a JSON object'),
    'double': (WHOLE + WHOLE.splitlines()[1] + '\n', 'line 4', 'a second time, after line 2'),
    'other figures': (WHOLE + 'a,0,10,"{""lr"": 2}",0.3,0.3\n', 'a second time, after line 2'),
    'a null in a name': (WHOLE.replace('method', 'me\0thod'), 'is not a record'),
    'header again': (WHOLE + WHOLE, "line 4: seed='seed'"),
    'no header': (WHOLE.partition('\n')[2], 'is not a record'),
    'column twice': (WHOLE.replace('AP,mAP', 'mAP,mAP'), 'is not a record'),
    'empty': ('', 'is not a record'),
    'null': (WHOLE.replace('0.25', '0.2\0'), 'line 2'),
    'bytes': (WHOLE.replace('a,0', '\udcff,0'), 'is not UTF-8 text'),
    'other file': ('<html>\n', 'is not a record'),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'record.csv'


@pytest.mark.parametrize('kind', DAMAGE)
def test_a_damaged_record_is_refused(path, kind):
    text, *words = DAMAGE[kind]
    path.write_bytes(text.encode(errors='surrogateescape'))
    for use in (read_rows, past_rows, lambda path: append_rows(path, [row('z')], FIELDS)):
        with pytest.raises(UserError, match='Fix: ') as caught:
            use(path)
        assert all(word in str(caught.value) for word in (str(path), *words)), caught.value
    assert path.read_bytes() == text.encode(errors='surrogateescape')


def row(method, seed=0, **more):
    return dict(method=method, seed=seed, step=10, settings='{}', AP=0.1, mAP=0.2) | more


def test_absent(path):
    assert past_rows(path) == []
    with pytest.raises(UserError, match='No such file'):
        read_rows(path)


def test_what_spreadsheets_and_editors_change_is_read(path):
    path.write_bytes(b'\xef\xbb\xbf' + WHOLE.replace('\n', '\r\n').encode() + b'\r\n')
    first, second = read_rows(path)
    assert first == dict(zip(FIELDS, ('a', '0', '10', '{}', '0.125', '0.25')))
    assert (second['method'], second['AP']) == ('b, c', '')


def test_columns_go_by_their_names(path):
    """A plan that lists its metrics in another order adds to the right columns."""
    path.write_text(WHOLE)
    append_rows(path, [row('z', other=1)], reversed(FIELDS))
    assert path.read_text() == WHOLE + 'z,0,10,{},0.1,0.2\n'


@pytest.mark.parametrize('fields', [FIELDS[:-1], (*FIELDS, 'AUC')])
def test_other_columns_are_refused(path, fields):
    path.write_text(WHOLE)
    for use in (past_rows, lambda path, fields: append_rows(path, [row('z', AUC=1)], fields)):
        with pytest.raises(UserError, match='other columns'):
            use(path, fields)
    assert path.read_text() == WHOLE


@pytest.mark.parametrize('bad', [dict(mAP=float('nan')), dict(seed=0, method='a')])
def test_all_new_rows_are_written_or_none(path, bad):
    path.write_text(WHOLE)
    with pytest.raises(UserError, match='Fix: '):
        append_rows(path, [row('y'), row('z') | bad], FIELDS)
    assert path.read_text() == WHOLE
    with pytest.raises(UserError, match='Fix: '):
        write_rows(path, [row('y'), row('y')], FIELDS)
    assert path.read_text() == WHOLE


def add(path, seeds):
    """Rows of some seeds, and of seed 0, which all processes add; how often that was refused."""
    refused = 0
    for seed in (*seeds, 0):
        try:
            append_rows(path, [row('a', seed), row('b', seed)], FIELDS)
        except UserError:
            refused += 1
    return refused


@pytest.mark.processes
def test_processes_neither_mix_nor_double_their_rows(path):
    with multiprocessing.get_context('spawn').Pool(3) as pool:
        refused = pool.starmap(add, [(path, range(k, 60, 3)) for k in (1, 2, 3)])
    assert sum(refused) == 2
    rows = read_rows(path)
    with path.open(newline='') as file:
        assert rows == list(csv.DictReader(file))
    assert sorted(int(x['seed']) for x in rows) == sorted([*range(60)] * 2)


PLAN = """
seeds: [3, 4]
data: {left: {size: 1}, right: {size: 2}}
common: {rate: 0.1}
methods:
- {name: a, loss: {type: X}}
- {name: b, rate: 0.2, seeds: 1}
- {name: c, sets: [right]}
"""


@pytest.fixture
def read_plan(tmp_path):
    """Reads a plan of some text."""

    def read(text):
        (tmp_path / 'plan.yaml').write_text(text)
        return TrainingPlan(tmp_path / 'plan.yaml')

    return read


def test_a_plan_names_its_trainings_and_goes_on_where_it_was(tmp_path, read_plan):
    plan = read_plan(PLAN)
    columns = ('method', 'seed', 'commit', 'mAP')
    record = Record(tmp_path / 'deep' / 'left.csv', columns)
    right = [*plan.missing('right', Record(tmp_path / 'right.csv', columns))]
    assert [(x['stage'], x['seed'], x['method']) for x, _ in right] == [
        ('final', seed, name) for seed, name in zip((3, 3, 3, 4, 4), 'abcac')
    ]
    assert [x['settings'] for x, _ in right[:2]] == ['{"loss": {"type": "X"}}', '{"rate": 0.2}']
    assert [method['rate'] for _, method in right[:3]] == [0.1, 0.2, 0.1]
    record.add([dict(method='a', seed=3, mAP=0.5, more='is left out')])
    for found in (record, Record(record.path, columns)):
        left = [(x['seed'], x['method']) for x, _ in plan.missing('left', found)]
        assert left == [(3, 'b'), (4, 'a')]
        assert found.rows[0]['mAP'] == '0.5'
    with pytest.raises(UserError, match='second time'):
        record.add([dict(method='a', seed=3, mAP=0.6)])
    with pytest.raises(UserError, match='other columns'):
        Record(record.path, ('method', 'seed'))


def test_a_method_stands_for_one_of_each_combination(tmp_path, read_plan):
    each = "{name: '{rate:g}, {loss}', each: {rate: [0.5, 1.0], loss: [x, y]}, width: 3}"
    plan = read_plan(f'seeds: [0]\ndata: x\nmethods:\n- {each}\n')
    found = [*plan.missing('plan', Record(tmp_path / 'x.csv', ('method', 'seed')))]
    assert [facts['method'] for facts, _ in found] == ['0.5, x', '0.5, y', '1, x', '1, y']
    assert found[1][1] == dict(rate=0.5, loss='y', width=3)


TUNED = """
seeds: [3, 4]
data: x
tune: {seeds: [1, 2], grid: {rate: [0.1, 0.3]}}
methods:
- {name: a, loss: {type: X}}
- {name: b, tune: {loss: [{type: Y}, {type: Z}], rate: [0.2]}}
"""
COLUMNS = ('stage', 'method', 'seed', 'step', 'commit', 'settings', 'mAP')


def train_all(plan, record):
    """Train what is missing, the better the larger the rate is; what was trained."""
    done = []
    for facts, method in plan.missing('plan', record, 'mAP'):
        stage, name, seed, _ = facts.values()
        mean = method['rate'] + (method['loss']['type'] == 'Z') - 0.01 * seed
        # What a training has on its way decides nothing.
        record.add(
            [dict(facts, step=step, mAP=value) for step, value in ((1, 9 - mean), (2, mean))]
        )
        done.append((stage, seed, name, method['rate'], method['loss']['type']))
    return done


def test_the_best_trial_is_trained_on_the_other_seeds(tmp_path, read_plan):
    record = Record(tmp_path / 'x.csv', COLUMNS)
    done = train_all(read_plan(TUNED), record)
    trials = [('a', 0.1, 'X'), ('a', 0.3, 'X'), ('b', 0.2, 'Y'), ('b', 0.2, 'Z')]
    assert done[:8] == [('tune', seed, *trial) for seed in (1, 2) for trial in trials]
    best = [('a', 0.3, 'X'), ('b', 0.2, 'Z')]
    assert done[8:] == [('final', seed, *trial) for seed in (3, 4) for trial in best]
    assert not train_all(read_plan(TUNED), Record(tmp_path / 'x.csv', COLUMNS))
    more = train_all(read_plan(TUNED.replace('[3, 4]', '[3, 4, 5]')), record)
    assert more == [('final', 5, *trial) for trial in best]
    only_trials = read_plan(TUNED.replace('seeds: [3, 4]', ''))
    assert train_all(only_trials, Record(tmp_path / 'y.csv', COLUMNS)) == done[:8]


def test_a_record_without_stages_keeps_no_trial(tmp_path, read_plan):
    """As it was written before trials were: what its final rows were trained with still counts."""
    path = tmp_path / 'x.csv'
    write_rows(path, [row('a', 3, settings='{"rate": 0.1}', commit='')], (*FIELDS, 'commit'))
    record = Record(path, ('stage', *FIELDS, 'commit'))
    plan = read_plan(TUNED)
    for facts, method in plan.missing('plan', record, 'mAP'):
        record.add([row('', mAP=method['rate']) | facts])
    rows = read_rows(path)
    assert [(x['method'], x['seed']) for x in rows] == [
        *(('a', '3'), ('b', '3'), ('a', '4'), ('b', '4'))
    ]
    assert all('0.1' in x['settings'] for x in rows if x['method'] == 'a')


def test_a_choice_without_a_trial_is_refused(tmp_path, read_plan):
    plan = read_plan(TUNED.replace('seeds: [1, 2], ', ''))
    with pytest.raises(UserError, match="'a' was not tried with {'rate': 0.1}. Fix: seeds of tune"):
        next(plan.missing('plan', Record(tmp_path / 'x.csv', COLUMNS), 'mAP'))


def test_a_plan_of_a_folder_has_one_set(read_plan):
    plan = read_plan('{seeds: [0], data: data/x, methods: [{name: a}]}')
    assert plan.data == {'plan': 'data/x'}


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('seeds: [0]', 'has no data. Fix'),
        ('{data: x, methods: [{name: a}]}', 'has no seeds. Fix'),
        ('{seeds: [0], data: x, methods: [{name: a}, {name: a}]}', 'name of its own for each'),
        ('{seeds: [0], data: x, methods: [{loss: a}]}', 'name of its own for each'),
        ('{seeds: [0', 'cannot be read'),
    ],
)
def test_a_faulty_plan_is_named(read_plan, text, message):
    with pytest.raises(UserError, match=message):
        read_plan(text)
