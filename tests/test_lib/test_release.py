"""Models of a release: built, registered, listed, loaded by name."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from lib import release as building
from lib.release import (
    ASSETS,
    PAGE,
    Asset,
    DataSource,
    build,
    chosen_assets,
    models_table,
    read_record,
    register,
    state_of,
)
from mmrank.apis import models
from mmrank.apis.models import find_weights, load_model, read_model_index, released_models
from mmrank.errors import UserError
from mmrank.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / 'shared' / 'data'
TOOL = ROOT / 'tools' / 'misc' / 'build_release.py'
CONFIG = """
model = dict(
    type='mmrank.TwoTower',
    left=dict(type='mmrank.EmbeddingTower', num_entities=2, channels=2),
    right=dict(type='mmrank.EmbeddingTower', num_entities=3, channels=2),
    loss=dict(type='mmrank.InBatchLoss'),
    top_k=1)
test_dataloader = dict(
    batch_size=2,
    num_workers=0,
    collate_fn=dict(type='mmrank.pair_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmrank.TopKDataset',
        data_root='data/shop/',
        ann_file='test.csv',
        train_ann_file='train.csv'))
test_evaluator = dict(type='mmrank.TopKMetric', k=(1,))
test_cfg = dict()
randomness = dict(seed=1)
"""
METAFILE = """# A comment that stays.
Collections:
  - Name: Shops
    Metadata:
      Training Data: a shop

Models:
  - Name: other
    In Collection: Shops
    Config: configs/shop/tiny.py  # stays, too
    Metadata: {Epochs: 3}
  - Name: tiny
    In Collection: Shops
    Config: configs/shop/tiny.py
    Metadata:
      Training Data: a shop
    Results:
      - Task: Recommendation
        Dataset: a former one
        Metrics:
          P@1: 1.0
  - Name: tiny_2
    In Collection: Shops
    Config: configs/shop/tiny.py
    Metadata: {}
"""
TINY = Asset(
    name='tiny',
    config='configs/shop/tiny.py',
    data=DataSource('shop', 'train.csv', 'shop'),
    dataset='a shop',
    task='Recommendation',
    metrics={'top_k/precision@1': 'P@1'},
    cfg_options={'test_dataloader.batch_size': '1'},
)


@pytest.fixture
def checkout(tmp_path, monkeypatch, run_script):
    """A checkout with one small model, whose training is over.

    Published files are tested in this process.
    """
    root, data = tmp_path / 'checkout', tmp_path / 'data' / 'shop'
    for folder in (root / 'configs/shop', root / 'docs/pages', data):
        folder.mkdir(parents=True)
    (root / TINY.config).write_text(CONFIG)
    (root / 'configs/shop/metafile.yml').write_text(METAFILE)
    (root / 'model-index.yml').write_text('Import:\n  - configs/shop/metafile.yml\n')
    (root / PAGE).write_text('before\n<!-- models -->\nold\n<!-- end of models -->\nafter\n')
    (root / 'tools').symlink_to(ROOT / 'tools')
    (data / 'train.csv').write_text('ann,jam\nann,rye\nbob,tea\n')
    (data / 'test.csv').write_text('ann,tea\nbob,rye\n')
    build_folder = tmp_path / 'out' / 'build'
    build_folder.mkdir(parents=True)
    monkeypatch.chdir(build_folder)
    TINY.data.prepare(data.parent, build_folder, ROOT)

    start = subprocess.run

    def run(command, **options):
        if Path(command[1]).name != 'test.py':
            return start(command, **options)
        return subprocess.CompletedProcess(command, *run_script(*command[1:]))

    monkeypatch.setattr(building.subprocess, 'run', run)
    monkeypatch.setattr(models, 'index_folder', lambda: root)
    return root, build_folder.parent


def leave_training(root, monkeypatch, precision=50.0):
    """What a training leaves behind, which the queue takes as finished."""
    model = MODELS.build(eval_config()['model'])
    with torch.no_grad():  # ann is given tea, which is right; bob jam
        model.left.table.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        model.right.table.weight.copy_(torch.tensor([[9.0, 9.0], [8.0, 1.0], [3.0, 0.0]]))

    class Finished(building.RunQueue):
        def run(self, runs):
            (run,) = runs
            assert run.options == TINY.cfg_options
            run.folder.mkdir(parents=True, exist_ok=True)
            torch.save(
                dict(
                    meta=dict(epoch=1, dataset_meta=dict(shop='a')),
                    state_dict=model.state_dict(),
                    optimizer=dict(state={}),
                ),
                run.folder / 'epoch_1.pth',
            )
            result = {'metrics': {'top_k/precision@1': precision}}
            run.result_file.write_text(json.dumps(result))
            return super().run(runs)

    monkeypatch.setattr(building, 'RunQueue', Finished)


def eval_config():
    settings = {}
    exec(CONFIG, settings)
    return settings


@pytest.fixture
def built(checkout, monkeypatch):
    root, out = checkout
    leave_training(root, monkeypatch)
    return root, out, build(TINY, out, root, Console(quiet=True))


def test_a_model_is_built_once(built, monkeypatch):
    root, out, record = built
    assert record == read_record('tiny', out)
    assert record.metrics == {'top_k/precision@1': 50.0}
    path = out / record.file
    assert path.name == f'tiny-{record.sha256[:8]}.pth'
    assert path.stat().st_size == record.size
    content = torch.load(path, weights_only=True)
    assert set(content) == {'meta', 'state_dict'}
    assert str(root.parent) not in str(content['meta'])
    assert state_of(TINY, out, root) == 'built'
    with open(path, 'ab') as file:
        file.write(b'x')
    assert state_of(TINY, out, root) == 'damaged'
    (out / 'tiny-abcdef01.pth').touch()  # of somebody
    path.rename(out / 'tiny-01234567.pth')  # a former version
    assert state_of(TINY, out, root) == 'absent'
    note = out / 'tiny.json'
    note.write_text(note.read_text().replace(path.name, 'tiny-01234567.pth'))
    assert build(TINY, out, root, Console(quiet=True)).file == record.file
    assert {*out.glob('*.pth')} == {path, out / 'tiny-abcdef01.pth'}
    (root / TINY.config).write_text(CONFIG + 'x = 1\n')
    os.utime(root / TINY.config, (0, 0))
    assert state_of(TINY, out, root) == 'outdated'
    monkeypatch.setattr(building, 'code_digest', lambda: 'other')
    (root / TINY.config).write_text(CONFIG)
    assert state_of(TINY, out, root) == 'outdated'


def test_a_file_with_other_metrics_is_refused(checkout, monkeypatch):
    root, out = checkout
    leave_training(root, monkeypatch, precision=51.0)
    with pytest.raises(UserError, match=r'tiny-.* = 50\.0, .* has 51\.0'):
        build(TINY, out, root, Console(quiet=True))
    assert state_of(TINY, out, root) == 'absent'
    assert not list(out.glob('*.pth'))


def test_a_model_is_registered(built):
    root, out, record = built
    written = register([TINY], out, root, 'https://example.org/v1/')
    assert [path.name for path in written] == ['metafile.yml', 'models.md']
    text = written[0].read_text()
    # Other entries and comments keep their lines.
    before, _, after = METAFILE.partition('  - Name: tiny\n')
    assert text.startswith(before)
    assert text.endswith(after[after.index('  - Name: tiny_2') :])
    entry = read_model_index(root)['tiny']
    assert entry['Weights'] == f'https://example.org/v1/{record.file}'
    assert entry['Metadata'] == {
        'Training Data': 'a shop',
        'Weights Size (MB)': round(record.size / 1e6, 2),
        'Weights SHA-256': record.sha256,
        'Seed': 0,
        'Settings': 'test_dataloader.batch_size=1',
    }
    assert entry['Results'][0]['Metrics'] == {'P@1': 50.0}
    page = written[1].read_text()
    assert page.startswith('before\n<!-- models -->\n\n| name')
    assert page.endswith('|\n\n<!-- end of models -->\nafter\n')
    assert '`tiny`' in page
    assert 'P@1 50.00' in page
    # Again, without an address: the name alone, and nothing twice.
    register([TINY], out, root)
    assert written[0].read_text() == text.replace('https://example.org/v1/', '')
    modelindex = pytest.importorskip('modelindex.load_model_index')
    found = modelindex.load(str(root / 'model-index.yml'))
    found.build_models_with_collections()
    models = {model.name: model for model in found.models}
    assert models['tiny'].weights == record.file
    assert models['tiny'].results[0].metrics == {'P@1': 50.0}


def test_a_model_is_loaded_by_name(built, monkeypatch):
    root, out, record = built
    with pytest.raises(UserError, match="'tiny' is no released model"):
        load_model('tiny', root)
    register([TINY], out, root)
    model = load_model('tiny', out)
    assert not model.training
    assert model.dataset_meta == {'shop': 'a'}
    assert model.cfg.model.top_k == 1
    assert model.right.table.weight[0].tolist() == [9.0, 9.0]
    with pytest.raises(UserError, match=r"take 'tiny', or one of tiny$"):
        load_model('tinny', out)
    with pytest.raises(UserError, match='has no file of it.*expected tiny-'):
        load_model('tiny', root)
    with pytest.raises(UserError, match=r'does not exist.*\n.*Fix: build it'):
        load_model('tiny', root / 'nowhere')
    register([TINY], out, root, 'https://example.org')
    with pytest.raises(UserError, match=r'get it from https://example.org/ti'):
        load_model('tiny', root)
    path = out / record.file
    content = torch.load(path, weights_only=True)
    torch.save({**content, 'of': 'somebody'}, root / 'other.pth')
    own = f'tiny-{hashlib.sha256((root / "other.pth").read_bytes()).hexdigest()[:8]}.pth'
    (root / 'other.pth').rename(root / own)
    with pytest.raises(UserError, match='is not the released file'):
        load_model('tiny', root)
    assert load_model('tiny', root, config=str(root / TINY.config))
    (out / 'tiny-0123abcd.pth').write_bytes(path.read_bytes())
    with pytest.raises(UserError, match='several files of tiny: tiny-0123abc'):
        load_model('tiny', out)
    path.unlink()
    with pytest.raises(UserError, match='is damaged: its SHA-256 begins with'):
        find_weights('tiny', out)


@pytest.mark.processes
def test_data_is_found_or_named(tmp_path):
    with pytest.raises(UserError, match=r'train\.csv does not exist.*\n.*Fix'):
        TINY.data.prepare(tmp_path, tmp_path / 'build', ROOT)
    (tmp_path / 'zipped').mkdir()
    (tmp_path / 'zipped' / 'a.zip').write_bytes(b'no archive')
    source = DataSource('zipped', 'a.zip', 'images', ('omniglot.py',))
    with pytest.raises(UserError, match=r'omniglot\.py cannot convert'):
        source.prepare(tmp_path, tmp_path / 'build', ROOT / 'tools' / 'dataset_converters')


def test_the_tool_lists_what_there_is(run_script, tmp_path):
    status, printed, _ = run_script(TOOL, '--list', '--out', tmp_path)
    assert status == 0
    assert printed.count('absent') == len(ASSETS)
    assert '(not' in printed
    status, _, errors = run_script(TOOL, 'resnet', '--list')
    assert status == 2
    assert "'resnet' is no model of the release" in errors
    names = [asset.name for asset in ASSETS]
    assert [x.name for x in chosen_assets(names[::-1])] == names


def test_the_index_and_the_page_agree():
    index = read_model_index(ROOT)
    released = {asset.name: asset for asset in ASSETS}
    for name, entry in index.items():
        if name in released:
            assert entry['Config'] == released[name].config
            assert Path(entry['Config']).stem == name
        if entry.get('Weights'):
            digest = entry['Metadata']['Weights SHA-256']
            file = entry['Weights'].rpartition('/')[2]
            assert file == f'{name}-{digest[:8]}.pth'
    assert models_table(index.values()) in (ROOT / PAGE).read_text('utf-8')
    assert set(released_models()) == set(released)
    modelindex = pytest.importorskip('modelindex.load_model_index')
    found = modelindex.load(str(ROOT / 'model-index.yml'))
    found.build_models_with_collections()
    assert len(list(found.models)) == len(index)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['two-tower64_unbiased-square_ml-1m'])
def test_a_real_model_end_to_end(name, tmp_path):
    (asset,) = chosen_assets([name])
    if not asset.data.is_there(DATA):
        pytest.skip(f'needs {asset.data.folder} in ../shared/data')
    command = [sys.executable, TOOL, name, '--data-root', DATA]
    command += ['--out', tmp_path]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    for expected in ('wrote', 'is built already'):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout
    record = read_record(name, tmp_path)
    assert record.metrics['top_k/precision@5'] > 20
    # Another machine may round otherwise, and the index has the hash of the released file.
    model = load_model(name, tmp_path, config=str(ROOT / asset.config))
    assert model.left.table.weight.shape == (6018, 64)
