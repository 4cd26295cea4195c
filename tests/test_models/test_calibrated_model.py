"""Models that show probabilities: same predictions, other scores."""

import copy

import pytest
import torch

pytest.importorskip('mmdet')
pytest.importorskip('mmpretrain')
from mmengine.config import Config
from mmengine.registry import init_default_scope
from small_rcnn import make_batch

from mmrank.calibration.calibration_file import Calibration, ClassMap, weights_digest
from mmrank.errors import UserError
from mmrank.evaluation.average_precision_metric import AveragePrecisionMetric
from mmrank.registry import MODELS

NAMES = ('circle', 'square', 'star')


def calibration(task, number=3, weights=None):
    """A map a class, each with a plateau."""
    maps = tuple(
        ClassMap(
            NAMES[i],
            9,
            4,
            scores=(0.2, 0.4 + 0.1 * i, 0.9),
            probabilities=(0.5, 0.5, 0.6 + 0.1 * i),
        )
        for i in range(number)
    )
    return Calibration(task, 'isotonic', 'test', maps, weights)


def detector_config():
    """RetinaNet, narrow, on the stable AP loss."""
    cfg = Config.fromfile('configs/stable_ap/retinanet_r18_fpn_stable-ap_demo.py')
    cfg.model.backbone.base_channels = 8
    cfg.model.backbone.init_cfg = None
    cfg.model.neck.update(in_channels=[8, 16, 32, 64], out_channels=16)
    cfg.model.bbox_head.update(in_channels=16, feat_channels=16)
    cfg.model.bbox_head.num_classes = 3
    cfg.model.test_cfg.update(score_thr=0.0, max_per_img=60)
    return cfg.model


def calibrated_config(config, made, path):
    config = copy.deepcopy(config)
    made.write(path)
    return dict(
        config, type='mmrank.CalibratedModel', model_type=config['type'], calibration=str(path)
    )


@pytest.fixture(scope='module')
def stock(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(request.config.rootpath)
        init_default_scope('mmdet')
        torch.manual_seed(0)
        return MODELS.build(detector_config()).eval()


class TestDetector:
    @pytest.fixture(autouse=True)
    def _in_the_checkout(self, monkeypatch, request):
        monkeypatch.chdir(request.config.rootpath)
        init_default_scope('mmdet')

    def build(self, stock, made, path):
        config = calibrated_config(detector_config(), made, path)
        model = MODELS.build(config).eval()
        model.load_state_dict(stock.state_dict())
        return model

    def test_same_boxes_with_probabilities(self, stock, tmp_path):
        digest = weights_digest(stock.state_dict())
        made = calibration('detection', weights=digest)
        model = self.build(stock, made, tmp_path / 'map.json')
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
            for label in range(3):
                mine = one.labels == label
                x, y = one.scores[mine], two.scores[mine]
                assert torch.equal(x[:, None] < x, y[:, None] < y)

    @pytest.mark.parametrize(
        ('made', 'text'),
        [
            (calibration('detection', 2), 'has 2 classes .*, but the model 3'),
            (calibration('classification'), 'is a calibration for class'),
        ],
    )
    def test_other_models_are_refused(self, made, text, tmp_path):
        config = calibrated_config(detector_config(), made, tmp_path / 'map.json')
        with pytest.raises(UserError, match=text) as caught:
            MODELS.build(config)
        assert 'map.json: ' in str(caught.value)

    def test_other_weights_and_names_are_refused(self, stock, tmp_path):
        path = tmp_path / 'map.json'
        made = calibration('detection', weights='ab' * 32)
        model = self.build(stock, made, path)
        with pytest.raises(UserError, match='of other weights'):
            model.val_step(make_batch())
        model = self.build(stock, calibration('detection'), path)
        model.dataset_meta = dict(classes=('circle', 'star', 'square'))
        with pytest.raises(UserError, match='is of the classes circle'):
            model.val_step(make_batch())


class TestClassifier:
    @pytest.fixture(autouse=True)
    def _scope(self):
        init_default_scope('mmpretrain')

    def config(self, number=3, head=None):
        return dict(
            type='mmpretrain.ImageClassifier',
            backbone=dict(type='mmpretrain.LeNet5', num_classes=-1),
            neck=dict(type='mmpretrain.GlobalAveragePooling'),
            head=head
            or dict(
                type='mmrank.OneVsRestHead',
                num_classes=number,
                in_channels=120,
                loss=dict(type='mmrank.StableAPLoss', mode='per_class'),
            ),
        )

    def models(self, tmp_path, number):
        made = calibration('classification', number)
        config = self.config(number)
        torch.manual_seed(0)
        stock = MODELS.build(config).eval()
        with torch.no_grad():
            stock.head.fc.weight.mul_(400)
        path = tmp_path / 'map.json'
        model = MODELS.build(calibrated_config(config, made, path)).eval()
        model.load_state_dict(stock.state_dict())
        return made, stock, model

    @pytest.mark.parametrize('number', [1, 3])
    def test_same_order_and_labels_by_threshold(self, number, tmp_path):
        made, stock, model = self.models(tmp_path, number)
        g = torch.Generator().manual_seed(0)
        images = torch.rand(24, 1, 32, 32, generator=g)
        images[5] = images[4]  # a tie
        target = torch.rand(24, number, generator=g) < 0.5
        figures = []
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
        for samples in (before, after):
            metric = AveragePrecisionMetric(classwise=True)
            rows = [
                dict(pred_score=x.pred_score, gt_score=y.float()) for x, y in zip(samples, target)
            ]
            metric.process(None, rows)
            found = metric.compute_metrics(metric.results)
            # Ranks over all classes together may change.
            figures.append({k: v for k, v in found.items() if 'micro' not in k})
        assert figures[0] == figures[1]
        assert len(figures[0]) == 2 + 2 * number

    def test_a_softmax_is_refused(self, tmp_path):
        head = dict(type='mmpretrain.LinearClsHead', num_classes=3, in_channels=120)
        config = calibrated_config(
            self.config(head=head), calibration('classification'), tmp_path / 'map.json'
        )
        with pytest.raises(UserError, match='softmax over the classes'):
            MODELS.build(config)


@pytest.mark.parametrize(
    ('kind', 'error', 'text'),
    [
        ('mmdet.NoSuchNet', KeyError, 'is not registered; write it with'),
        ('mmrank.ListwiseHead', TypeError, 'is not a class with a predict'),
        (torch.nn.Linear, TypeError, 'is not a class with a predict'),
    ],
)
def test_model_type_is_a_model(kind, error, text, tmp_path):
    path = calibration('detection').write(tmp_path / 'map.json')
    config = dict(type='mmrank.CalibratedModel', model_type=kind, calibration=str(path))
    with pytest.raises(error, match=text):
        MODELS.build(config)
