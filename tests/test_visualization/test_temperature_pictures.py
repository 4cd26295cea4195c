"""Figures, sheets and tables of temperatures."""

import csv

import numpy as np
import pytest
from PIL import Image

from mmrank.visualization.temperature_report import (
    _draw_temperature_sheet,
    _WarmImage,
    plot_history,
    write_temperature_report,
)
from mmrank.visualization.temperatures import TemperatureHistory, Temperatures


class Painted:
    """Images whose colour is their class."""

    def __init__(self, labels, classes=('red', 'green', 'blue'), **keys):
        self.labels, self.keys = np.asarray(labels), keys
        if classes:
            self.metainfo = dict(classes=classes)

    def __len__(self):
        return len(self.labels)

    def get_data_info(self, index):
        """An item, as mmengine's data sets have it."""
        image = np.zeros((8, 8, 3), np.uint8)
        image[..., self.labels[index]] = 255
        labels = dict(gt_label=self.labels[index]) if hasattr(self, 'metainfo') else {}
        return dict(img=image, **labels, **self.keys)


class Twice:
    """A wrapper as mmengine's RepeatDataset."""

    def __len__(self):
        return 2 * len(self.dataset)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert('RGB')).astype(int)


def has_colour(picture, colour, least=20):
    """Whether at least some pixels are exactly of a colour."""
    return (picture == np.array(colour)).all(-1).sum() >= least


def temperatures_by_class(labels):
    tau = np.array([0.9, 0.5, 0.1], dtype=np.float32)[labels]
    tau += np.linspace(0, 0.05, len(tau), dtype=np.float32)
    return Temperatures('temperature', tau, np.ones(len(tau), dtype=bool))


def test_report_shows_hot_and_cold_classes(tmp_path):
    labels = np.repeat([0, 1, 2], [12, 6, 3])
    paths, correlation = write_temperature_report(
        temperatures_by_class(labels), Painted(labels), tmp_path, 3, 3
    )
    assert [p.name for p in paths] == [
        'samples_temperature.csv',
        'classes_temperature.csv',
        'classes_temperature.png',
        'sheet_temperature.png',
    ]
    assert all(p.is_file() for p in paths)
    assert correlation.rho == pytest.approx(1)
    with paths[0].open() as file:
        rows = list(csv.DictReader(file))
    assert [int(r['label']) for r in rows] == labels.tolist()
    assert float(rows[0]['tau']) == pytest.approx(0.9)
    with paths[1].open() as file:
        classes = list(csv.DictReader(file))
    assert [c['class'] for c in classes] == ['red', 'green', 'blue']
    assert [float(c['hot']) for c in classes] == [0.25, 0, 0]
    assert [float(c['cold']) for c in classes] == [0, 0, 1]
    sheet = pixels(paths[3])
    # Red images above, blue ones below, no green one.
    rows = [np.flatnonzero((sheet == c).all(-1).any(1)) for c in np.eye(3) * 255]
    assert rows[0].max() < rows[2].min()
    assert not len(rows[1])


def test_captions_take_the_place_of_classes(tmp_path):
    labels = np.array([0, 2, 1, 1])
    data = Painted(labels, classes=None, text=['a red square', 'other'])
    paths, correlation = write_temperature_report(
        temperatures_by_class(labels), data, tmp_path, num_images=1
    )
    assert correlation is None
    assert [p.stem for p in paths] == ['samples_temperature', 'sheet_temperature']
    paths, _ = write_temperature_report(temperatures_by_class(labels), data, tmp_path, num_images=0)
    assert len(paths) == 1


def test_images_are_read_from_files(tmp_path):
    Image.new('RGB', (300, 20), (0, 255, 0)).save(tmp_path / 'a.png')

    class Files(Painted):
        def get_data_info(self, index):
            return dict(img_path=str(tmp_path / 'a.png'))

    labels = np.array([0, 1])
    paths, _ = write_temperature_report(temperatures_by_class(labels), Files(labels), tmp_path)
    assert has_colour(pixels(paths[-1]), (0, 255, 0))


def test_repeated_data_is_seen_through(tmp_path):
    labels = np.array([0, 1, 2])
    twice = Twice()
    twice.dataset = Painted(labels)
    paths, _ = write_temperature_report(
        temperatures_by_class(labels), twice, tmp_path, num_images=0
    )
    assert len(paths[0].read_text().splitlines()) == 4


def test_other_data_is_refused(tmp_path):
    found = temperatures_by_class(np.zeros(4, dtype=int))
    with pytest.raises(ValueError, match='4 temperatures, .* has 3 samples'):
        write_temperature_report(found, Painted([0, 0, 0]), tmp_path)
    fresh = Temperatures('t', found.tau, np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match='no sample was visited'):
        write_temperature_report(fresh, Painted([0] * 4), tmp_path)


@pytest.mark.parametrize('steps', [[5], [1, 2, 3]])
def test_history_is_drawn(tmp_path, steps):
    history = TemperatureHistory(0.0, 1.0)
    with pytest.raises(ValueError, match='without a reading'):
        plot_history(history, tmp_path / 'a.png')
    rng = np.random.default_rng(0)
    for step in steps:
        history.add(step, rng.uniform(0.2, 0.6, 200))
    picture = pixels(plot_history(history, tmp_path / 'a/a.png', 'title'))
    # Vermilion: the last histogram and the upper quantiles.
    assert (np.abs(picture - [213, 94, 0]).sum(-1) < 60).sum() > 50


def test_a_sheet_needs_an_image(tmp_path):
    with pytest.raises(ValueError, match='at least one image'):
        _draw_temperature_sheet([], [], tmp_path / 'a.png')
    one = _WarmImage(np.full((4, 4, 3), (0, 0, 255), np.uint8), 0.5, 'x' * 99)
    path = _draw_temperature_sheet([one], [], tmp_path / 'b.png')
    assert has_colour(pixels(path), (0, 0, 255))
