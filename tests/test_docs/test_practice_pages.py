"""The blocks of the pages on scaling, calibration and deployment."""

import re

import pytest
import torch
from docs_blocks import PAGES, ROOT, block, blocks, values_of

SCALING = PAGES / 'scaling.md'
CALIBRATION = PAGES / 'calibration_and_deployment.md'


def test_state_of_a_loss_has_the_size_of_the_table(capsys):
    values_of(block(SCALING, 'ISogCLRLoss'))
    said = capsys.readouterr().out
    assert said == '12 bytes a sample\n'
    assert '| 12 a sample;' in SCALING.read_text('utf-8')


@pytest.mark.slow
def test_scaling_commands(newcomer):
    """Two processes, and an accumulation; all learn."""
    pytest.importorskip('mmpretrain')
    output = newcomer(blocks(SCALING, 'bash'))
    found = re.findall(r'Epoch\(val\) .*ranking/mAP: ([\d.]+)', output)
    assert len(found) == 2
    assert min(map(float, found)) > 30
    # 600 images in batches of 64, and in parts of 16.
    for iterations in (10, 38):
        assert re.search(rf'Epoch\(train\) +\[6\]\[\d+/{iterations}\]', output)
    for name in ('two_processes', 'accumulated'):
        assert (newcomer.folder / 'work_dirs' / name / 'epoch_6.pth').is_file()


def test_calibration(capsys):
    """The figures of the page, those of the truth too."""
    pytest.importorskip('sklearn')
    from sklearn.metrics import brier_score_loss, f1_score

    found = values_of(block(CALIBRATION, 'LogisticRegression'))
    said = capsys.readouterr().out
    (shown,) = blocks(CALIBRATION, 'text')
    number = re.compile(r'\d\.\d+')
    assert number.sub('', said) == number.sub('', shown)
    assert [float(x) for x in number.findall(said)] == pytest.approx(
        [float(x) for x in number.findall(shown)], abs=4e-3
    )
    labels = found['test_labels']
    chosen = f1_score(labels, found['test'] >= found['threshold'])
    half = f1_score(labels, found['scores'][6000:].sigmoid() >= 0.5)
    assert chosen > half
    text = ' '.join(CALIBRATION.read_text('utf-8').split())
    shown = float(re.search(r'have a Brier score of (\d\.\d+)', text)[1])
    score = brier_score_loss(labels, found['chance'][6000:].numpy())
    assert score == pytest.approx(shown, abs=2e-3)


def test_pairs_in_tar_files(tmp_path, monkeypatch):
    """The numbers are those of the samples, and the state of each has moved."""
    pytest.importorskip('webdataset')
    (text,) = blocks(PAGES / 'users' / 'image_text.md', '{.python .needs-webdataset}')
    assert len(text.splitlines()) <= 25
    monkeypatch.chdir(tmp_path)
    found = values_of(text)
    seen = [
        (int(number), caption)
        for _, captions, numbers in found['pairs']
        for number, caption in zip(numbers, captions)
    ]
    assert sorted(seen) == [(i, f'picture {i:06}') for i in range(64)]
    state = found['loss'].state_dict()
    fresh = type(found['loss'])(num_samples=64).state_dict()
    moved = [(state[k] != fresh[k]) for k in state if state[k].shape[:1] == (64,)]
    assert moved
    assert torch.stack(moved).any(0).all()


@pytest.mark.slow
def test_export(tmp_path, monkeypatch):
    pytest.importorskip('mmdet')
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    monkeypatch.chdir(tmp_path)
    found = values_of(block(CALIBRATION, 'torch.export'))
    image = torch.rand(1, 3, 192, 256)
    program = torch.export.load('detector.pt2').module()
    with torch.no_grad():
        expected = found['model'](image, mode='tensor')
        got = program(image, mode='tensor')
    for one, other in zip(got, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
