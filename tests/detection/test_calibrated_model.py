"""Models that show probabilities: same predictions, other scores."""

import pytest
import torch

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from mmengine.registry import init_default_scope
from small_models import CONV, POOL
from small_rcnn import detector_config, make_batch

from mmrank.calibration.calibration_file import Calibration, ClassMap, weights_digest
from mmrank.errors import UserError
from mmrank.registry import MODELS

NAMES = ('circle', 'square', 'star', 'cross')


def calibration(task, number, weights=None):
    """A map a class, each with a plateau."""
    maps = []
    for i, name in enumerate(NAMES[:number]):
        probabilities = (0.5, 0.5, 0.6 + 0.1 * i)
        knots = (0.2, 0.4 + 0.1 * i, 0.9)
        maps.append(ClassMap(name, 9, 4, scores=knots, probabilities=probabilities))
    return Calibration(task, 'test', tuple(maps), weights)


@pytest.fixture
def calibrated(tmp_path):
    def build(config, made, stock=None):
        path = made.write(tmp_path / 'map.json')
        own = dict(type='mmrank.CalibratedModel', model_type=config['type'], calibration=str(path))
        model = MODELS.build({**config, **own}).eval()
        if stock is not None:
            model.load_state_dict(stock.state_dict())
        return model

    return build


def small_detector():
    """Faster R-CNN, of which every box is shown."""
    init_default_scope('mmdet')
    config = detector_config()
    config.type = f'mmdet.{config.type}'
    config.test_cfg.rcnn.update(score_thr=0.0, max_per_img=60)
    return config


@pytest.fixture(scope='module')
def stock():
    return MODELS.build(small_detector()).eval()


def test_a_detector_shows_the_same_boxes_with_probabilities(stock, calibrated):
    made = calibration('detection', 4, weights_digest(stock.state_dict()))
    model = calibrated(small_detector(), made, stock)
    assert isinstance(model, type(stock))
    assert list(model.state_dict()) == list(stock.state_dict())
    with torch.no_grad():
        before = stock.val_step(make_batch())
        after = model.val_step(make_batch())
    for one, two in zip(before, after):
        one, two = one.pred_instances, two.pred_instances
        assert len(one) == 60
        assert torch.equal(one.bboxes, two.bboxes)
        assert torch.equal(one.labels, two.labels)
        assert torch.equal(two.scores, made.probabilities(one.scores, one.labels))
        for label in range(4):
            x = one.scores[one.labels == label]
            y = two.scores[one.labels == label]
            assert torch.equal(x[:, None] < x, y[:, None] < y)


def test_calibrations_of_other_models_are_refused(stock, calibrated):
    for made, text in (
        (calibration('detection', 2), 'has 2 classes .*, but the model 4'),
        (calibration('classification', 4), 'is a calibration for class'),
    ):
        with pytest.raises(UserError, match=f'map.json: .*{text}'):
            calibrated(small_detector(), made)
    model = calibrated(small_detector(), calibration('detection', 4, 'ab' * 32), stock)
    with pytest.raises(UserError, match='of other weights'):
        model.val_step(make_batch())
    model = calibrated(small_detector(), calibration('detection', 4), stock)
    model.dataset_meta = dict(classes=NAMES[::-1])
    with pytest.raises(UserError, match='is of the classes circle'):
        model.val_step(make_batch())


def classifier(number=3):
    init_default_scope('mmpretrain')
    loss = dict(type='mmrank.StableAPLoss')
    head = dict(type='mmrank.OneVsRestHead', num_classes=number, in_channels=8, loss=loss)
    return dict(type='mmpretrain.ImageClassifier', backbone=CONV, neck=POOL, head=head)


@pytest.mark.parametrize('number', [1, 3])
def test_a_classifier_labels_by_the_probability(number, calibrated):
    made = calibration('classification', number)
    stock = MODELS.build(classifier(number)).eval()
    with torch.no_grad():
        stock.head.fc.weight.normal_(std=4)
    model = calibrated(classifier(number), made, stock)
    images = torch.rand(24, 3, 16, 16)
    with torch.no_grad():
        before = stock(images, mode='predict')
        after = model(images, mode='predict')
    for x, y in zip(before, after):
        expected = made.columns(x.pred_score[None])[0]
        assert y.pred_score.dtype == torch.float64
        assert torch.equal(y.pred_score, expected)
        found = expected >= 0.5
        label = found.long() if number == 1 else found.nonzero()
        assert torch.equal(y.pred_label, label.flatten())
    config = classifier(number)
    config['head'] = dict(type='mmpretrain.LinearClsHead', num_classes=number, in_channels=8)
    with pytest.raises(UserError, match='softmax over the classes'):
        calibrated(config, made)


@pytest.mark.parametrize(
    ('kind', 'error', 'text'),
    [
        ('mmdet.NoSuchNet', KeyError, 'is not registered as a class; write it'),
        ('mmrank.ListwiseHead', KeyError, 'is not registered as a class; write it'),
        (torch.nn.Linear, TypeError, 'is not a class with a predict'),
    ],
)
def test_model_type_is_a_model(kind, error, text, tmp_path):
    path = calibration('detection', 3).write(tmp_path / 'map.json')
    config = dict(type='mmrank.CalibratedModel', model_type=kind, calibration=str(path))
    with pytest.raises(error, match=text):
        MODELS.build(config)
