"""Any detector or one-vs-rest classifier that shows probabilities."""

import os

from torch import nn

from mmrank.calibration.calibration_file import Calibration, read_calibration, weights_digest
from mmrank.errors import UserError
from mmrank.made_class import MadeClass, host_class
from mmrank.models.heads.one_vs_rest_head import OneVsRestHead
from mmrank.registry import MODELS


class CalibratedMixin(MadeClass):
    """Mixin for detectors and classifiers: ``predict`` calibrates.

    The maps act on what the host predicts, after thresholds and non-maximum suppression: the same
    boxes, with other scores. Within a class their order and ties stay, and its average precision.
    """

    name_prefix = 'Calibrated'
    doc_suffix = 'with calibrated scores'
    calibration: Calibration
    _is_checked = False

    def predict(self, inputs, data_samples=None, *args, **kwargs) -> list:
        """Predict as the host does, with float64 probabilities: in float32 some would tie."""
        if not self._is_checked:
            # Once, with what the model is by now: it has its weights, and the inferencers of mmdet
            # and mmpretrain and mmrank's test.py have set the classes.
            meta = getattr(self, 'dataset_meta', None) or {}
            if meta.get('classes') is not None:
                self.calibration.check_names(meta['classes'])
            if self.calibration.weights_sha256 is not None:
                self.calibration.check_weights(weights_digest(self.state_dict()))
            self._is_checked = True
        samples = super().predict(inputs, data_samples, *args, **kwargs)
        for sample in samples:
            if self.calibration.task == 'detection':
                found = sample.pred_instances
                found.scores = self.calibration.probabilities(found.scores, found.labels)
            else:
                score = self.calibration.columns(sample.pred_score[None])[0]
                found = score >= self.head.thr
                is_binary = isinstance(self.head, OneVsRestHead) and len(score) == 1
                label = found.long() if is_binary else found.nonzero()
                sample.set_pred_score(score).set_pred_label(label.flatten())
        return samples


@MODELS.register_module()
def CalibratedModel(
    model_type: str | type, *, calibration: str | os.PathLike, **kwargs
) -> nn.Module:
    """Build a model whose scores are probabilities at test time.

    In a config, keep the model and name its type and a file that
    ``tools/analysis_tools/calibrate.py`` has written::

        _base_ = 'my_detector.py'
        model = dict(
            type='mmrank.CalibratedModel',
            model_type='mmdet.RetinaNet',
            calibration='work_dirs/calibration/calibration.json')

    ``mmrank test``, ``DetInferencer`` and all that builds a model from its config then show
    probabilities. Checkpoints are the model's own.

    Args:
        model_type: The model: its class, or registered name with its scope. A detector of mmdet, or
            ``mmpretrain.ImageClassifier`` with a head of sigmoid scores.
        calibration: Calibration file.
        **kwargs: Arguments of the model.
    """
    host = host_class('model_type', model_type, 'mmdet.RetinaNet')
    if not hasattr(host, 'predict'):
        what = f'model_type={model_type!r} is not a class with a predict method'
        raise TypeError(f"{what}; name the detector or classifier itself, as in 'mmdet.RetinaNet'")
    maps = read_calibration(calibration)
    model = CalibratedMixin.class_for(host)(**kwargs)
    try:
        _check_task(model, maps)
    except UserError as error:
        raise UserError(f'{calibration}: {error}') from error
    model.calibration = maps
    return model


def _check_task(model: nn.Module, maps: Calibration) -> None:
    head = getattr(model, 'bbox_head', getattr(model, 'head', None))
    if hasattr(model, 'roi_head'):
        head = getattr(model.roi_head, 'bbox_head', None)
        head = head[-1] if isinstance(head, nn.ModuleList) else head  # of a cascade
    is_classifier = hasattr(model, 'head') and not hasattr(model, 'bbox_head')
    task = 'classification' if is_classifier else 'detection'
    if task != maps.task:
        what = f'this is a calibration for {maps.task}, the model is for {task}'
        raise UserError(what, 'use the calibration of this model')
    if is_classifier and getattr(head, 'thr', None) is None:
        raise UserError(
            f'the scores of {type(head).__name__} are a softmax over the classes, or it has no '
            'threshold: maps of single classes would not sum to 1 and change the first class. Fix: '
            'calibrate one-vs-rest scores, such as those that mmrank.OneVsRestHead gives'
        )
    number = getattr(head, 'num_classes', None)
    if number is not None and number != len(maps.maps):
        what = f'the calibration has {len(maps.maps)} classes ({", ".join(maps.classes[:6])})'
        raise UserError(f'{what}, but the model {number}', 'use the calibration of this model')
