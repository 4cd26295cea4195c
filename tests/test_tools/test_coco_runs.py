"""What the command line of a COCO table names, and what it must not."""

from dataclasses import replace

import pytest
from run_records import run_record

from detectors.runs import (
    ModelResult,
    _describe_progress,
    _run_command,
    find_annotations,
    find_finished,
    parse_entries,
    plan_run,
    read_record,
    read_result,
    write_record,
)
from mmrank.apis.common.command_line import digest_run
from mmrank.errors import UserError

RECORD = run_record()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Some files, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ('a.bbox.json', 'x=y/b.json', 'c.py', 'c.pth', 'd/e.bbox.json'):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"{name}"')
    return tmp_path


def test_entries_are_read(files):
    entries = parse_entries(['a.bbox.json', 'x=y/b.json', 'stable AP=c.py,c.pth', 'c.py', 'd'])
    assert [e.name for e in entries] == ['a', 'b', 'stable AP', 'c', 'd']


def test_entries_with_equals_signs_in_paths(files):
    (entry,) = parse_entries(['name=x=y/b.json'])
    assert (entry.name, str(entry.path)) == ('name', 'x=y/b.json')
    (entry,) = parse_entries(['x=y/b.json'])
    assert (entry.name, entry.is_config) == ('b', False)
    (entry,) = parse_entries(['m=c.py,c.pth'])
    assert entry.is_config
    assert str(entry.checkpoint) == 'c.pth'


@pytest.mark.parametrize(
    ('words', 'match'),
    [
        (['m=a.bbox.json', 'm=c.py'], "'m' is used for 2 models"),
        (['a.bbox.json', 'a=d'], "'a' is used for 2 models"),
        (['m=nothing.json'], "'nothing.json' does not exist"),
        (['m='], "'' does not exist"),
        (['x=z/b.json'], "'z/b.json' does not exist"),
        (['m=a.bbox.json,c.pth'], 'is not a config'),
        (['m=c.py,d.pth'], "checkpoint 'd.pth' does not exist"),
        (['m=c.py,'], "checkpoint '' does not exist"),
    ],
)
def test_a_wrong_entry_is_named(files, words, match):
    with pytest.raises(UserError, match=match) as caught:
        parse_entries(words)
    assert 'Fix: ' in str(caught.value)


def result_of(word):
    return read_result(parse_entries([word])[0])


def test_predictions_of_a_folder_are_found(files):
    assert result_of('d').predictions.name == 'e.bbox.json'
    assert result_of('d').record is None
    write_record(RECORD, 'd')
    assert result_of('d').record == RECORD
    (files / 'd/f.bbox.json').write_text('[]')
    with pytest.raises(UserError, match=r'has e\.bbox\.json, f\.bbox\.json'):
        result_of('d')
    (files / 'd/predictions.bbox.json').write_text('[]')
    assert result_of('d').predictions.name == 'predictions.bbox.json'
    (files / 'd/run.json').write_text('{"digest": 1}')
    with pytest.raises(UserError, match='is not a record'):
        result_of('d')
    (files / 'empty').mkdir()
    with pytest.raises(UserError, match='and has none'):
        result_of('empty')


def make_results(files, **ann_files):
    return [
        ModelResult(name, files, file and replace(RECORD, ann_file=str(file)))
        for name, file in ann_files.items()
    ]


def test_annotations_are_those_of_the_runs(files):
    one, same, other = (files / f'{n}.json' for n in ('one', 'same', 'other'))
    for path, text in ((one, 'x'), (same, 'x'), (other, 'y')):
        path.write_text(text)
    find = find_annotations
    assert find(make_results(files, a=one, b=None), None) == one
    assert find(make_results(files, a=one, b=same), None) == one
    assert find(make_results(files, a=None), str(other)) == other
    assert find(make_results(files, a=one), str(same)) == same
    with pytest.raises(UserError, match='a and b have different annotation'):
        find(make_results(files, a=one, b=other), None)
    with pytest.raises(UserError, match='--ann-file and a have different'):
        find(make_results(files, a=one), str(other))
    with pytest.raises(UserError, match='is unknown.*pass --ann-file'):
        find(make_results(files, a=None), None)
    gone = files / 'gone.json'
    with pytest.raises(UserError, match='a: the annotation file'):
        find(make_results(files, a=gone), None)
    # Data that has moved since: the file given counts.
    assert find(make_results(files, a=gone), str(one)) == one
    with pytest.raises(UserError, match='--ann-file: the annotation file'):
        find(make_results(files, a=one), str(gone))


def test_a_run_is_recognised_by_what_it_depends_on(files):
    (trained, tested) = parse_entries(['t=c.py', 'a b/c=c.py,c.pth'][:1]) + (
        parse_entries(['a b=c.py,c.pth'])
    )
    folder, digest = plan_run(tested, {'lr': 1}, 'cpu', files / 'out')
    assert folder.parent == files / 'out' / 'runs'
    assert folder.name == f'a_b-{digest[:8]}'
    assert plan_run(tested, {'lr': 1}, 'cpu', files)[1] == digest
    others = {
        plan_run(tested, {'lr': 2}, 'cpu', files)[1],
        plan_run(tested, {'lr': 1}, 'cuda', files)[1],
        plan_run(trained, {'lr': 1}, 'cpu', files)[1],
    }
    (files / 'c.pth').write_text('trained on')
    others.add(plan_run(tested, {'lr': 1}, 'cpu', files)[1])
    assert len(others | {digest}) == 5


def test_only_a_whole_run_is_taken_again(files):
    digest = digest_run({}, None, 'cpu')
    assert find_finished('m', files, digest) is None
    (files / 'predictions.bbox.json').write_text('[]')
    assert find_finished('m', files, digest) is None
    write_record(replace(RECORD, digest=digest), files)
    assert find_finished('m', files, digest).record == read_record(files)
    assert find_finished('m', files, 'another') is None


def test_a_failed_command_shows_the_end_of_its_log(files):
    import sys

    script = files / 'fail.py'
    script.write_text('print("the reason"); raise SystemExit(3)')
    with pytest.raises(UserError, match='status 3') as caught:
        _run_command([sys.executable, str(script)], files / 'log')
    assert 'the reason' in str(caught.value)
    script.write_text('print("fine")')
    _run_command([sys.executable, str(script)], files / 'log')
    assert 'fine' in (files / 'log' / 'output.log').read_text()


def test_progress_of_a_log():
    log = 'Epoch(train)  [2][ 10/52]  lr: 1e-4  eta: 0:01:02  time: 0.5\n'
    assert _describe_progress(log).startswith('epoch 2 iteration 10/52')
    log += 'Epoch(test) [ 50/100]    eta: 0:00:10\n'
    assert _describe_progress(log) == 'testing, batch 50 of 100'
    assert _describe_progress('') == 'starting'
