"""Figures, colours and pictures of temperatures."""

import csv
import warnings
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from cifar_trees import CIFAR10_NAMES, write_arrays
from PIL import Image
from scipy.stats import spearmanr
from torch import nn

from mmrank.losses import BimodalISogCLRLoss, ISogCLRLoss
from mmrank.pictures.figures import _text_width, fit_text, fit_two_lines, new_panels, save, shorten
from mmrank.pictures.names import metric_name
from mmrank.pictures.palette import colour
from mmrank.pictures.temperature_report import write_history, write_temperature_report
from mmrank.pictures.temperatures import (
    ClassTemperature,
    Temperatures,
    class_temperatures,
    extreme_samples,
    frequency_correlation,
    read_temperatures,
)


def test_names_are_shortened_in_the_middle():
    assert shorten('retinanet', 9) == 'retinanet'
    one, other = (shorten(f'retinanet_r50_fpn_{i}', 9) for i in (1, 2))
    assert one == 'reti…pn_1'
    assert len(one) == len(other) == 9
    assert one != other
    assert shorten('abcd', 3) == 'a…d'


@pytest.mark.parametrize('text', ['W' * 30, 'i' * 30, 'WWWW ' * 9, 'owl', ''])
@pytest.mark.parametrize('weight', ['normal', 'bold'])
def test_text_fits(text, weight):
    line = fit_text(text, 1.0, 8, weight)
    lines = fit_two_lines(text, 1.0, 8)
    assert len(lines) == (2 if text.count(' ') else 1)
    assert _text_width(line, 8, weight) <= 1.0
    assert all(_text_width(shown, 8, 'normal') <= 1.0 for shown in lines)
    if text == 'owl':
        assert (line, lines) == ('owl', ['owl'])
    if len(text) == 30:
        # As much as there is room for: one more would be too wide.
        longer = shorten(text, len(line) + 1)
        assert _text_width(longer, 8, weight) > 1.0 or line == text


@pytest.mark.parametrize('name', ['$5 note$', '$\\5$', 'a_{b}^$', '钳子', '_bg', 'é', '😀'])
def test_a_name_is_drawn_as_it_is(tmp_path, name):
    figure, axes = new_panels(1, 1)
    axes[0, 0].set(title=name, xscale='log')
    axes[0, 0].plot([1, 1000], [0, 1])
    assert fit_text(name, 9, 8) == name
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert save(figure, tmp_path / 'a.png').stat().st_size
    ticks = [x for x in axes[0, 0].get_xticklabels() if x.get_text().startswith('$')]
    assert ticks
    assert all(x.get_parse_math() for x in ticks)


def test_colours_repeat_when_there_are_no_more():
    assert len({colour(i) for i in range(20)}) == 20
    assert colour(99).startswith('#')


@pytest.mark.parametrize(
    ('metric', 'words'),
    [
        ('coco/bbox_mAP_50', 'box AP at IoU 0.50'),
        ('image_text/IR@10', 'image retrieval, recall at 10'),
        ('mine/score', 'mine/score'),
    ],
)
def test_metrics_in_words(metric, words):
    assert metric_name(metric) == words


class Painted:
    """Images whose colour is their class."""

    metainfo = {'classes': ('red', 'green', 'blue')}  # noqa: RUF012

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def get_data_info(self, index):
        """An item, as mmengine's data sets have it."""
        image = np.zeros((8, 8, 3), np.uint8)
        image[..., self.labels[index]] = 255
        return dict(img=image, gt_label=self.labels[index])


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert('RGB')).astype(int)


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def temperatures_by_class(labels):
    tau = np.array([0.9, 0.5, 0.1], dtype=np.float32)[labels]
    tau += np.linspace(0, 0.05, len(tau), dtype=np.float32)
    return Temperatures('temperature', tau, np.ones(len(tau), dtype=bool))


def test_names_values_and_visits_in_a_checkpoint(tmp_path):
    loss = BimodalISogCLRLoss(5)
    loss.image_temperature.tau[[1, 3]] = torch.tensor([0.02, 0.03])
    loss.image_temperature.log_s[[1, 3]] = 0.5
    path = tmp_path / 'epoch_1.pth'
    torch.save({'state_dict': nn.ModuleDict({'loss': loss}).state_dict()}, path)
    image, text = read_temperatures(path)
    assert (image.name, text.name) == ('image_temperature', 'text_temperature')
    np.testing.assert_allclose(image.tau, [0.01, 0.02, 0.01, 0.03, 0.01], rtol=1e-6)
    assert image.visited.tolist() == [False, True, False, True, False]
    assert not text.visited.any()
    torch.save(nn.ModuleDict({'a': ISogCLRLoss(2), 'b': ISogCLRLoss(3)}).state_dict(), path)
    assert [x.name for x in read_temperatures(path)] == ['a.temperature', 'b.temperature']


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'does not exist'),
        ([1], 'has no per-sample'),
        # A learnt temperature of the whole model is none of the samples.
        ({'state_dict': {'loss.tau': torch.ones(1)}}, 'has no per-sample'),
        (b'text', 'is damaged or is not a checkpoint'),
    ],
)
def test_files_without_temperatures_are_named(tmp_path, content, message):
    path = tmp_path / 'x.pth'
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(ValueError, match=rf'x\.pth {message}'):
        read_temperatures(path)


def test_frequency_correlation_has_the_p_value_of_all_permutations():
    counts = np.arange(1, 6)
    means = [0.2, 0.1, 0.4, 0.3, 0.5]
    rows = [ClassTemperature('', *row, 0, 0, 0) for row in zip(counts, means)]
    rho, p_value = frequency_correlation([*rows, ClassTemperature('', 0, np.nan, 0, 0, 0)])
    assert rho == pytest.approx(spearmanr(counts, means).statistic, abs=1e-12)
    others = [abs(spearmanr(counts, order).statistic) for order in permutations(means)]
    assert p_value == pytest.approx(np.mean(np.array(others) >= abs(rho) - 1e-9), abs=0.01)
    constant = [ClassTemperature('', 4, mean, 0, 0, 0) for mean in means]
    assert np.isnan(frequency_correlation(constant)).all()


def test_extremes_leave_unvisited_samples_out():
    tau = np.array([0.5, 0.1, 0.9, 0.3, 0.7], dtype=np.float32)
    found = Temperatures('', tau, np.array([True, True, False, True, True]))
    hot, cold = extreme_samples(found, 100)
    assert hot.tolist() == [4, 0]
    assert cold.tolist() == [1, 3]


def test_class_rows():
    labels = np.array([0] * 6 + [1] * 3 + [2])
    tau = np.array([8, 9, 7, 8, 9, 1, 4, 5, 3, 2], dtype=np.float32) / 10
    found = Temperatures('', tau, np.arange(10) != 5)
    rows = class_temperatures(found, labels, 'abcd', num_extreme=3)
    assert [(row.name, row.count) for row in rows] == [('a', 5), ('b', 3), ('c', 1), ('d', 0)]
    assert rows[0].mean == pytest.approx(0.82)
    assert rows[1].std == pytest.approx(np.std([0.4, 0.5, 0.3]))
    assert rows[0].hot_share == pytest.approx(3 / 5)
    assert rows[1].cold_share == pytest.approx(2 / 3)
    assert rows[2].cold_share == 1
    assert np.isnan(rows[3].mean)


def test_report_shows_hot_and_cold_classes(tmp_path):
    labels = np.repeat([0, 1, 2], [12, 6, 3])
    # As mmengine's RepeatDataset, which is seen through.
    twice = type('Twice', (), {'__len__': lambda _: 42, 'dataset': Painted(labels)})()
    paths, correlation = write_temperature_report(
        temperatures_by_class(labels), twice, tmp_path, num_images=3
    )
    samples, classes, sheet = paths
    assert [path.name.partition('_')[0] for path in paths] == ['samples', 'classes', 'sheet']
    assert all(path.is_file() for path in paths)
    assert correlation.startswith('Spearman +1.000 (p = ')
    assert [int(row['label']) for row in rows_of(samples)] == labels.tolist()
    assert float(rows_of(samples)[0]['tau']) == pytest.approx(0.9)
    assert [row['class'] for row in rows_of(classes)] == ['red', 'green', 'blue']
    # Red images above, blue ones below, no green one.
    picture = pixels(sheet)
    places = [np.flatnonzero((picture == c).all(-1).any(1)) for c in np.eye(3) * 255]
    assert places[0].max() < places[2].min()
    assert not len(places[1])


def test_captions_take_the_place_of_classes_and_files_of_arrays(tmp_path):
    Image.new('RGB', (300, 20), (0, 255, 0)).save(tmp_path / 'a.png')
    labels = np.array([0, 2, 1, 1])
    keys = dict(text=['a red square', 'other'], img_path=str(tmp_path / 'a.png'))
    data = Painted(labels)
    data.get_data_info = lambda _: keys
    found = temperatures_by_class(labels)
    paths, correlation = write_temperature_report(found, data, tmp_path)
    assert correlation == ''
    assert [path.stem for path in paths] == ['samples_temperature', 'sheet_temperature']
    assert (pixels(paths[-1]) == [0, 255, 0]).all(-1).sum() > 20
    assert len(write_temperature_report(found, data, tmp_path, num_images=0)[0]) == 1


@pytest.mark.parametrize('steps', [[5], [1, 2, 3]])
def test_history_is_drawn(tmp_path, steps):
    rng = np.random.default_rng(0)
    readings = [rng.uniform(0.2, 0.6, 200) for _ in steps]
    table, picture = write_history(steps, readings, tmp_path / 'a', 'x', 'epoch')
    rows = rows_of(table)
    assert [int(row['step']) for row in rows] == steps
    assert float(rows[0]['q50']) == pytest.approx(np.median(readings[0]), rel=1e-5)
    # Vermilion: the last histogram and the upper percentiles.
    assert (np.abs(pixels(picture) - [213, 94, 0]).sum(-1) < 60).sum() > 50


TOOL = 'analysis_tools/temperatures'
CONFIG = """
default_scope = 'mmpretrain'
train_dataloader = dict(
    dataset=dict(type='mmrank.CIFAR10LT', data_root={root!r},
                 imbalance_ratio=5))
"""


@pytest.fixture
def config(tmp_path):
    """A config of CIFAR-10-LT with 10 images of the first class."""
    pytest.importorskip('mmpretrain')
    write_arrays(tmp_path, dict(train=10))
    path = tmp_path / 'config.py'
    path.write_text(CONFIG.format(root=str(tmp_path)))
    return path


def write_checkpoint(path, tau, visited=True):
    log_s = torch.zeros(len(tau)) if visited else torch.full(tau.shape, -np.inf)
    state = {'loss.temperature.tau': tau, 'loss.temperature.log_s': log_s}
    torch.save({'state_dict': state}, path)
    return path


def sizes():
    return [int(10 * 5 ** (-c / 9) + 1e-6) for c in range(10)]


def test_tables_and_pictures_of_a_training(tmp_path, config, run_script):
    labels = torch.arange(10).repeat_interleave(torch.tensor(sizes()))
    noise = torch.linspace(0, 0.01, len(labels))
    checkpoints = [
        write_checkpoint(tmp_path / f'epoch_{i}.pth', i * (1 - labels / 20) + noise)
        for i in (9, 10)
    ]
    out = tmp_path / 'out'
    path = Path(__file__).parents[2] / 'tools' / f'{TOOL}.py'
    status, text, errors = run_script(path, config, *checkpoints, '--out-dir', out)
    assert (status, errors) == (0, '')
    assert f'{len(labels)} of {len(labels)} samples visited' in text
    # The labels of the subset stand in the order of the images.
    assert 'Spearman +0.9' in text
    names = ('history.csv', 'history.png', 'samples.csv', 'classes.csv', 'sheet.png')
    assert {p.name for p in out.iterdir()} == {x.replace('.', '_temperature.') for x in names}
    assert [r['step'] for r in rows_of(out / 'history_temperature.csv')] == ['9', '10']
    rows = rows_of(out / 'classes_temperature.csv')
    assert [r['class'] for r in rows] == list(CIFAR10_NAMES)
    assert [int(r['samples']) for r in rows] == sizes()


def test_what_has_no_temperatures_of_this_training_is_named(tmp_path, config, run):
    total = sum(sizes())
    short = write_checkpoint(tmp_path / 'epoch_2.pth', torch.rand(total - 1))
    fresh = write_checkpoint(tmp_path / 'new.pth', torch.rand(total), False)
    for arguments, message in (
        ((config, short), f'{total - 1} temperatures, but the training set'),
        ((config, fresh), 'no sample was visited yet'),
    ):
        assert message in run(TOOL, *arguments, '--out-dir', tmp_path / 'out', status=2)
    good = write_checkpoint(tmp_path / 'epoch_1.pth', torch.rand(total))
    run(TOOL, config, good, '--images', -1, status=2)
