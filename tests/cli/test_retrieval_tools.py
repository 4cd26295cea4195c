"""The retrieval report and the converters of interactions."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from PIL import Image
from small_retriever import write_image_config

from mmrank.cli.draw import retrieval as retrieval_report
from mmrank.datasets import InteractionDataset, TopKDataset
from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures, load_features, save_features


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    """A folder for each of three classes, five images in each."""
    root = tmp_path_factory.mktemp('images')
    g = np.random.default_rng(0)
    for name in ('ant', 'bee', 'cow'):
        (root / name).mkdir()
        mean = g.integers(0, 256, (16, 16, 3))
        for i in range(5):
            noise = g.normal(0, 30, mean.shape)
            pixels = (mean + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f'{i}.png')
    return root


def write_features(path, images, seed=0, **changes):
    g = torch.Generator().manual_seed(seed)
    options = dict(
        features=torch.randn(15, 4, generator=g),
        labels=torch.arange(15) // 5,
        paths=[f'{c}/{i}.png' for c in ('ant', 'bee', 'cow') for i in range(5)],
        classes=['ant', 'bee', 'cow'],
    )
    return save_features(RetrievalFeatures(**{**options, **changes}), path)


@pytest.fixture
def call(tmp_path, images, monkeypatch, capsys):
    def run(*words):
        words = [*map(str, words), '--out-dir', str(tmp_path / 'out')]
        words += ['--image-root', str(images)]
        monkeypatch.setattr(sys, 'argv', ['report', *words])
        retrieval_report.main()
        return capsys.readouterr().out

    return run


def test_report_of_features(call, tmp_path, images):
    a = write_features(tmp_path / 'a.npz', images)
    b = write_features(tmp_path / 'b.npz', images, seed=1)
    words = ('--num-queries', 2, '--top-k', 3, '--recall-at', 1, 5)
    text = call(f'stable AP={a}', b, *words)
    assert 'stable AP' in text
    assert '15 queries in a gallery of 15' in text
    written = {p.name for p in (tmp_path / 'out').iterdir()}
    assert written == {
        *('retrieval.md', 'retrieval.csv'),
        *('precision_recall.png', 'recall_at_k.png'),
        *('sheet_random_stable_AP.png', 'sheet_random_b.png'),
        *('sheet_worst_stable_AP.png', 'sheet_worst_b.png'),
        'sheet_differing.png',
    }
    assert 'recall@5' in (tmp_path / 'out' / 'retrieval.csv').read_text()
    # What is there stays, and one model differs from none.
    (tmp_path / 'out/sheet_old.png').touch()
    (tmp_path / 'out/sheet_differing.png').unlink()
    call(b, *words)
    sheets = {p.name.split('_')[1] for p in (tmp_path / 'out').glob('sheet_*')}
    assert sheets == {'random', 'worst', 'old.png'}
    assert 'sheet_' not in call(a, '--sheets')
    a = write_features(tmp_path / 'a.npz', images, paths=None)
    assert 'No sheets: the features have no image paths' in call(a)


@pytest.mark.slow
def test_report_of_a_config(call, tmp_path, images, monkeypatch):
    pytest.importorskip('mmpretrain')
    from mmengine.config import Config

    config = write_image_config(tmp_path / 'small.py', images)
    cfg = Config.fromfile(config)
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = MODELS.build(cfg.model)
        state = model.state_dict()
        lacking, _ = state.popitem()
        torch.save(state, tmp_path / f'{seed}.pth')
    words = [f'{seed}={config},{tmp_path / f"{seed}.pth"}' for seed in (0, 1)]
    words += ['--allow-partial', lacking]
    text = call(*words, '--num-queries', 2)
    assert text.count('testing, log in') == 2
    assert '15 queries in a gallery of 15' in text
    files = sorted((tmp_path / 'out' / 'features').iterdir())
    first, second = map(load_features, files)
    assert first.features.shape == (15, 8)
    assert not torch.equal(first.features, second.features)
    assert Path(first.paths[7]) == images / 'bee' / '2.png'

    # What is there is used; a changed checkpoint has features of its own.
    state = torch.load(tmp_path / '1.pth')
    torch.save({k: 2 * v for k, v in state.items()}, tmp_path / '1.pth')
    text = call(*words, '--sheets')
    assert text.count('tested before') == text.count('testing, log in') == 1

    # Validation data are other data.
    with pytest.raises(UserError, match='0: the config has no val_data'):
        call(*words, '--sheets', '--split', 'val')
    with config.open('a') as file:
        file.write('val_dataloader = dict(test_dataloader, batch_size=5)\n')
        file.write('val_evaluator = test_evaluator\n')
    text = call(*words, '--sheets', '--split', 'val')
    assert text.count('testing, log in') == 2

    config.write_text('model = dict()\n')
    with pytest.raises(UserError, match='0: the config has no test_data'):
        call(words[0])


def test_errors_are_one_message(call, tmp_path, images):
    a = write_features(tmp_path / 'a.npz', images)
    b = write_features(tmp_path / 'b.npz', images, labels=torch.arange(15) % 5)
    for words, message in (
        (['x=none.npz'], "'x=none.npz': 'none.npz' is no"),
        ([f'x y={a}', f'x_y={b}'], 'map to one file name'),
        ([f'x={__file__}'], 'a config requires a checkpoint'),
        ([f'x={__file__},x.pth'], "checkpoint 'x.pth' does not exist"),
        ([a, b], "'b' has 15 samples with other"),
    ):
        with pytest.raises(UserError, match=message):
            call(*words)


def test_ratings_are_split_as_they_are(run, tmp_path):
    lines = [
        f'{user}::{item}::{3 + (user + item) % 3}::7' for user in range(12) for item in range(10)
    ]
    # An item that one user knows stays in training.
    lines += ['3::77::5::7', '3::78::1::7']
    source = tmp_path / 'ratings.dat'
    source.write_text('\n'.join(lines) + '\n')
    tool = 'dataset_converters/split_interactions'
    run(tool, source, tmp_path / 'out', '--separator :: --min-rating 4 --share 0.3')
    train = (tmp_path / 'out/train.dat').read_text().splitlines()
    test = (tmp_path / 'out/test.dat').read_text().splitlines()
    kept = [x for x in lines if int(x.split('::')[2]) >= 4]
    assert sorted(train + test) == sorted(kept)
    assert '3::77::5::7' in train
    form = dict(data_root=tmp_path / 'out', file_format='movielens')
    dataset = InteractionDataset('train.dat', **form)
    assert dataset.interactions.shape == (12, 11)
    held_out = TopKDataset('test.dat', 'train.dat', **form)
    assert held_out.interactions.num_unknown == 0
    by_user = [x.split('::')[0] for x in test]
    assert all(by_user.count(str(u)) in (1, 2) for u in range(12))
