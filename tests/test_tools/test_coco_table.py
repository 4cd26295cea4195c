"""The command line of the COCO table: files, runs, reuse and errors."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
import torch
from noisy_boxes import as_lvis, make_predictions, write_json
from rich.console import Console
from run_records import run_record

import coco_table
import measure_detector
from detectors.evaluation import (
    BenchmarkRow,
    describe_runs,
    rich_benchmark,
    table_cells,
    write_benchmark,
)
from detectors.runs import RECORD_NAME, read_record
from mmrank.apis.synthetic.shapes_coco import ShapesSpec, write_shapes_coco
from mmrank.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / 'tools' / 'benchmarks'


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Shapes with the predictions of two models: folder of everything."""
    root = tmp_path_factory.mktemp('shapes')
    spec = ShapesSpec(num_train=1, num_val=6, num_test=5, num_classes=4)
    files = write_shapes_coco(root, spec)
    for split in ('val', 'test'):
        document = json.loads(files[split].read_text())
        for seed, name in enumerate(('good', 'poor')):
            boxes = make_predictions(document, seed=seed, jitter=0.15 * seed)
            path = root / f'{split}_{name}' / 'results.bbox.json'
            path.parent.mkdir()
            path.write_text(json.dumps(boxes))
    return root


@pytest.fixture
def call(data, tmp_path, monkeypatch):
    """Call the tool; give what it printed. Drawing takes its time."""
    draw = coco_table.plot_pr_curves

    def run(*words, ann_file='val', out='out', pictures=False):
        own = draw if pictures else lambda *arguments, **options: 'no picture'
        monkeypatch.setattr(coco_table, 'plot_pr_curves', own)
        console = Console(file=io.StringIO(), width=120)
        words = [str(word) for word in words]
        if ann_file:
            words += ['--ann-file', str(data / f'annotations/{ann_file}.json')]
        words += ['--out-dir', str(tmp_path / out)]
        coco_table.run(coco_table.parse_args(words), console)
        return console.file.getvalue()

    return run


def read_table(folder):
    with (folder / 'coco_table.csv').open(newline='') as file:
        return {row['method']: row for row in csv.DictReader(file)}


def test_folders_make_everything(call, data, tmp_path):
    call(
        f'good={data}/val_good',
        f'poor={data}/val_poor/results.bbox.json',
        *('--classes', 'disk'),
        pictures=True,
    )
    out = tmp_path / 'out'
    assert {path.name for path in out.iterdir()} == {
        'coco_table.md',
        'coco_table.csv',
        'classes.csv',
        'pr_curves.png',
    }
    table = read_table(out)
    assert float(table['good']['mAP']) > float(table['poor']['mAP']) > 0


def test_images_without_predictions_are_reported(call, data, tmp_path):
    boxes = json.loads((data / 'val_good/results.bbox.json').read_text())
    few = tmp_path / 'few.bbox.json'
    few.write_text(json.dumps([b for b in boxes if b['image_id'] > 2]))
    shown = call(few)
    assert 'few: 2 of 6 images have no prediction' in shown
    few.write_text('[]')
    with pytest.raises(UserError, match='no boxes in the'):
        call(few)


def test_wrong_input_is_refused(call, data):
    good = f'{data}/val_good'
    with pytest.raises(UserError, match='are not in the annotations'):
        call(good, ann_file='test')
    with pytest.raises(ValueError, match="no class 'zebra'"):
        call(good, '--classes', 'zebra', pictures=True)


def test_errors_are_one_message(data, tmp_path, monkeypatch, capsys):
    words = [f'{data}/val_good', '--ann-file', str(tmp_path / 'no.json')]
    monkeypatch.setattr(sys, 'argv', ['coco_table.py', *words])
    assert coco_table.main() == 2
    captured = capsys.readouterr().err
    assert captured.startswith('error: --ann-file')
    assert 'Traceback' not in captured


FAKE = """
import json, shutil, sys
from pathlib import Path
root = Path({root!r})
words = sys.argv[1:]
out, digest = (words[words.index(k) + 1] for k in ('--out', '--digest'))
with open(root / 'calls.txt', 'a') as file:
    file.write(' '.join(words[:2]) + '\\n')
name = 'good' if 'good' in words[0] else 'poor'
if name == 'poor' and (root / 'broken').exists():
    sys.exit('broken on purpose')
split = 'test' if '--cfg-options' in words else 'val'
source = root / f'{{split}}_{{name}}' / 'results.bbox.json'
shutil.copy(source, Path(out) / 'predictions.bbox.json')
record = dict(digest=digest, config=words[0], checkpoint='x.pth',
    ann_file=str(root / f'annotations/{{split}}.json'),
    device='CPU', batch_size=1, timed_images=3,
    images_per_second=4.0, images_per_second_with_data=3.0,
    memory_bytes=2**20, memory_kind='CPU', parameters=10**6)
(Path(out) / 'run.json').write_text(json.dumps(record))
"""


def test_configs_are_run_once(call, data, tmp_path, monkeypatch):
    script = tmp_path / 'measure_detector.py'
    script.write_text(FAKE.format(root=str(data)))
    monkeypatch.setattr(coco_table, 'HERE', tmp_path)
    monkeypatch.setattr('detectors.runs._POLL_SECONDS', 0.01)
    for name in ('good', 'poor'):
        (tmp_path / f'{name}.py').write_text('model = dict()')
    (tmp_path / 'x.pth').write_text('weights')
    words = [f'good={tmp_path}/good.py,{tmp_path}/x.pth', f'{tmp_path}/poor.py']
    calls = data / 'calls.txt'
    calls.unlink(missing_ok=True)

    # A failure keeps what is finished.
    (data / 'broken').touch()
    with pytest.raises(UserError, match=r'poor: .* status 1') as caught:
        call(*words, ann_file=None)
    assert 'broken on purpose' in str(caught.value)
    (data / 'broken').unlink()
    shown = call(*words, ann_file=None)
    lines = calls.read_text().splitlines()
    assert [line.split()[0][-7:] for line in lines] == ['good.py', 'poor.py', 'poor.py']
    assert lines[0].endswith('x.pth')
    assert lines[1].split()[1] == '--out'
    assert 'good: run before' in shown
    row = read_table(tmp_path / 'out')['poor']
    assert row['images_per_second'] == '4.0'

    call(*words, ann_file=None)
    assert len(calls.read_text().splitlines()) == 3
    # Other overrides are another run.
    call(*words, '--cfg-options', 'a=1', ann_file=None)
    assert len(calls.read_text().splitlines()) == 5
    (tmp_path / 'poor.py').write_text('model = dict(')
    with pytest.raises(UserError, match='cannot be read as a config'):
        call(*words, ann_file=None)


def test_lvis_is_recognised(call, data, tmp_path):
    pytest.importorskip('lvis', reason='the optional package lvis is absent')
    document = json.loads((data / 'annotations/val.json').read_text())
    path = write_json(tmp_path / 'lvis.json', as_lvis(document))
    words = [f'{data}/val_good', '--ann-file', path]
    shown = call(*words, '--classes', 'disk', ann_file=None, pictures=True)
    assert 'lvis.json, 6 images, lvis' in shown
    row = read_table(tmp_path / 'out')['val_good']
    for name in ('mAP', 'APr', 'APc', 'APf', 'AR300'):
        assert 0 <= float(row[name]) <= 1
    assert (tmp_path / 'out' / 'pr_curves.png').is_file()


TINY = """
_base_ = {base!r}
model = dict(
    backbone=dict(base_channels=8),
    neck=dict(in_channels=[8, 16, 32, 64], out_channels=8),
    bbox_head=dict(num_classes=4, in_channels=8, feat_channels=8))
metainfo = dict(classes=('disk', 'square', 'triangle', 'star'))
train_dataloader = dict(
    batch_size=1, num_workers=0,
    dataset=dict(
        data_root={root!r}, metainfo=metainfo,
        ann_file='annotations/val.json', data_prefix=dict(img='val')))
val_dataloader = dict(
    num_workers=0, dataset=dict(data_root={root!r}, metainfo=metainfo))
val_evaluator = dict(ann_file={root!r} + '/annotations/val.json')
test_dataloader = dict(
    batch_size=2, num_workers=0,
    dataset=dict(data_root={root!r}, metainfo=metainfo))
test_evaluator = dict(ann_file={root!r} + '/annotations/test.json')
"""


@pytest.fixture
def tiny(data, tmp_path):
    """A small detector's config for the shapes."""
    pytest.importorskip('mmdet')
    base = ROOT / 'configs/stable_ap/retinanet_r18_fpn_stable-ap_demo.py'
    path = tmp_path / 'tiny.py'
    path.write_text(TINY.format(base=str(base), root=str(data)))
    return path


def test_a_detector_is_measured(tiny, data, tmp_path, monkeypatch):
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    cfg = Config.fromfile(tiny)
    init_default_scope('mmdet')
    checkpoint = tmp_path / 'tiny.pth'
    model = MODELS.build(cfg.model)
    state = model.state_dict()
    lacking = next(iter(state))
    del state[lacking]
    torch.save({'state_dict': state}, checkpoint)
    out = tmp_path / 'run'
    words = [str(tiny), str(checkpoint), '--out', str(out)]
    words += ['--allow-partial', lacking]
    measure_detector.main(measure_detector.parse_args([*words, '--digest', 'd']))
    record = read_record(out)
    assert record.digest == 'd'
    # Three batches of two, two and one image; the first is left out.
    assert (record.timed_images, record.batch_size) == (3, 2)
    assert record.images_per_second >= record.images_per_second_with_data > 0
    assert record.parameters == sum(p.numel() for p in model.parameters())
    boxes = json.loads((out / 'predictions.bbox.json').read_text())
    assert {box['image_id'] for box in boxes} <= {1, 2, 3, 4, 5}
    assert {box['category_id'] for box in boxes} <= {1, 2, 3, 4}

    tiny.write_text(f'{tiny.read_text()}\ntest_evaluator = []\n')
    with pytest.raises(UserError, match='writes no COCO predictions'):
        measure_detector.main(measure_detector.parse_args(words))


@pytest.mark.slow
def test_a_config_is_trained_tested_and_tabled(tiny, data, tmp_path, call):
    words = (f'tiny={tiny}', '--cfg-options', 'train_cfg.max_epochs=1')
    call(*words, ann_file=None)
    (folder,) = (tmp_path / 'out' / 'runs').iterdir()
    assert (folder / RECORD_NAME).is_file()
    record = read_record(folder)
    assert Path(record.checkpoint).parent == folder / 'train'
    assert set(read_table(tmp_path / 'out')) == {'tiny'}
    assert 'tiny: run before' in call(*words, ann_file=None)


NAN = float('nan')


def make_rows():
    """Three models; the last comes from a file."""
    names, classes = ('mAP', 'APs', 'APl'), ('cat', 'dog|wolf')
    figures = [(0.4, 0.1234, NAN), (0.3, 0.1229, NAN), (0.2, 0.05, NAN)]
    records = [run_record(), run_record(memory_bytes=None), None]
    return [
        BenchmarkRow(
            f'model [{letter}]', dict(zip(names, values)), dict(zip(classes, values[:2])), record
        )
        for letter, values, record in zip('abc', figures, records)
    ]


def test_cells_by_hand():
    header, cells, best = table_cells(make_rows())
    table = {key: [row[i] for row in cells] for i, key in enumerate(header)}
    assert header == [
        'method',
        'mAP',
        'APs',
        'APl',
        'img/s',
        'img/s with data',
        'memory (MiB)',
        'parameters (M)',
    ]
    assert table['mAP'] == ['40.0', '30.0', '20.0']
    assert table['APl'] == ['n/a', 'n/a', 'n/a']
    assert table['img/s'] == ['2.5', '2.5', '-']
    assert table['memory (MiB)'] == ['3', '-', '-']
    assert table['parameters (M)'] == ['1.50', '1.50', '-']
    marks = {key: [row[i] for row in best] for i, key in enumerate(header)}
    assert marks.pop('mAP') == [True, False, False]
    # 12.34 and 12.29 read the same, so both are best.
    assert marks.pop('APs') == [True, True, False]
    assert not any(sum(column) for column in marks.values())


def test_equal_models_have_no_best():
    row = make_rows()[0]
    assert not any(map(any, table_cells([row])[2]))
    assert not any(map(any, table_cells([row, row])[2]))


def test_files_are_whole(tmp_path):
    rows = make_rows()
    files = write_benchmark(rows, tmp_path / 'new', 'Title', ['A note.'])
    assert [f.name for f in files] == ['coco_table.md', 'coco_table.csv', 'classes.csv']
    text = files[0].read_text()
    assert '| **40.0** |' in text
    assert '* A note.' in text
    assert '| dog\\|wolf | **12.3** | **12.3** | 5.0 |' in text
    with files[1].open(newline='') as file:
        table = list(csv.DictReader(file))
    assert float(table[0]['APs']) == 0.1234
    assert float(table[0]['images_per_second']) == 2.54
    assert table[1]['memory_bytes'] == table[2]['images_per_second'] == ''
    with files[2].open(newline='') as file:
        classes = list(csv.reader(file))
    assert classes[0] == ['class', *(row.name for row in rows)]
    assert [float(x) for x in classes[2][1:]] == [0.1234, 0.1229, 0.05]


def test_console_shows_names_as_they_are():
    console = Console(file=io.StringIO(), width=100)
    console.print(rich_benchmark(make_rows()))
    shown = console.file.getvalue()
    assert 'model [a]' in shown
    assert '40.0' in shown


def test_unlike_measurements_are_kept_apart():
    one, other, none = make_rows()
    assert describe_runs([none]) == []
    (note,) = describe_runs([one, other, none])
    assert note.startswith('Speed: CPU, 2 threads, batches of 2')
    gpu = BenchmarkRow('g', {}, {}, run_record(device='GPU'))
    notes = describe_runs([one, gpu])
    assert [n.split(':')[0] for n in notes] == [one.name, 'g']
