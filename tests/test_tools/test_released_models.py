"""Released models: listed, loaded by name, refused if they are not what the index says."""

import hashlib
from pathlib import Path, PurePosixPath

import pytest
import torch
import yaml

from mmrank.apis import models
from mmrank.apis.models import find_weights, load_model, read_model_index, released_models
from mmrank.errors import UserError
from mmrank.registry import MODELS
from publishing import publish_model

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
model = dict(
    type='mmrank.TwoTower',
    left=dict(type='mmrank.EmbeddingTower', num_entities=2, channels=2),
    right=dict(type='mmrank.EmbeddingTower', num_entities=3, channels=2),
    loss=dict(type='mmrank.InBatchLoss'),
    top_k=1)
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with a config and an index, and the published file of a model."""
    root, out = tmp_path / 'checkout', tmp_path / 'out'
    (root / 'configs/shop').mkdir(parents=True)
    (root / 'configs/shop/tiny.py').write_text(CONFIG)
    (root / 'model-index.yml').write_text('Import:\n  - configs/shop/metafile.yml\n')
    settings = {}
    exec(CONFIG, settings)
    model = MODELS.build(settings['model'])
    model.right.table.weight.data[0] = 9.0
    content = dict(meta=dict(dataset_meta=dict(shop='a')), state_dict=model.state_dict())
    torch.save(content, tmp_path / 'epoch_1.pth')
    path, digest = publish_model(str(tmp_path / 'epoch_1.pth'), out / 'tiny.pth')
    monkeypatch.setattr(models, 'index_folder', lambda: root)
    register(root)
    return root, path, digest


def register(root, weights=None, digest=None):
    """Write the index: a model with a file, or without one."""
    entry = dict(Name='tiny', Config='configs/shop/tiny.py')
    if weights:
        entry.update(Weights=weights, Metadata={'Weights SHA-256': digest})
    path = root / 'configs/shop/metafile.yml'
    path.write_text(yaml.dump(dict(Models=[entry])))


def test_a_model_is_loaded_by_name(checkout):
    root, path, digest = checkout
    out = path.parent
    with pytest.raises(UserError, match="'tiny' is no released model"):
        load_model('tiny', root)
    register(root, path.name, digest)
    model = load_model('tiny', out)
    assert not model.training
    assert model.dataset_meta == {'shop': 'a'}
    assert model.cfg.model.top_k == 1
    assert model.right.table.weight[0].tolist() == [9.0, 9.0]
    with pytest.raises(UserError, match=r"take 'tiny', or one of tiny$"):
        load_model('tinny', out)
    with pytest.raises(UserError, match='has no file of it.*expected tiny-'):
        load_model('tiny', root)
    with pytest.raises(UserError, match=r'does not exist.*\n.*Fix: put it there, or train its'):
        load_model('tiny', root / 'nowhere')
    register(root, f'https://example.org/{path.name}', digest)
    with pytest.raises(UserError, match=r'get it from https://example.org/ti'):
        load_model('tiny', root)
    content = torch.load(path, weights_only=True)
    torch.save({**content, 'of': 'somebody'}, root / 'other.pth')
    own = f'tiny-{hashlib.sha256((root / "other.pth").read_bytes()).hexdigest()[:8]}.pth'
    (root / 'other.pth').rename(root / own)
    with pytest.raises(UserError, match='is not the released file'):
        load_model('tiny', root)
    assert load_model('tiny', root, config=str(root / 'configs/shop/tiny.py'))
    (out / 'tiny-0123abcd.pth').write_bytes(path.read_bytes())
    with pytest.raises(UserError, match='several files of tiny: tiny-0123abc'):
        load_model('tiny', out)
    path.unlink()
    with pytest.raises(UserError, match='is damaged: its SHA-256 begins with'):
        find_weights('tiny', out)


def test_the_index_and_the_page_agree():
    index = read_model_index()
    page = (ROOT / 'docs/pages/models.md').read_text('utf-8').splitlines()
    released = {name: entry for name, entry in index.items() if entry.get('Weights')}
    assert set(released_models()) == set(released)
    rows = [line for line in page if line.startswith('| `') and '| `configs/' in line]
    assert len(rows) == len(released)
    for name, entry in released.items():
        assert Path(entry['Config']).stem == name
        meta, result = entry['Metadata'], entry['Results'][0]
        digest = meta['Weights SHA-256']
        assert entry['Weights'].rpartition('/')[2] == f'{name}-{digest[:8]}.pth'
        metrics = ', '.join(f'{key} {value:.2f}' for key, value in result['Metrics'].items())
        settings = f'`{meta["Settings"]}`' if 'Settings' in meta else ''
        cells = (f'`{name}`', f'`{PurePosixPath(entry["Config"]).parent}/`', result['Dataset'])
        cells += (metrics, f'{meta["Weights Size (MB)"]:.2f} MB', f'`{digest[:8]}`', settings)
        assert f'| {" | ".join(cells)} |' in rows
    modelindex = pytest.importorskip('modelindex.load_model_index')
    found = modelindex.load(str(ROOT / 'model-index.yml'))
    found.build_models_with_collections()
    assert len(list(found.models)) == len(index)
