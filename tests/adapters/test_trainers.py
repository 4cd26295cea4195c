"""The trainers of other libraries, by their own entry, on a ranking loss.

Each trains on ten images, is stopped after an epoch, goes on to the second, and exports to ONNX.
"""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from mmrank.adapters import remove_ranking_loss, use_ranking_loss
from mmrank.adapters.class_part import ranking_parts
from mmrank.losses import GradedAPLoss, StableAPLoss

#: State of the losses at the start of each training step.
STARTS = []
NAMES = ['red', 'green', 'blue']


class Stopped(Exception):
    """A training that was interrupted."""


def note(part, args):
    """Forward pre-hook of a part with rankings; a function, since Ultralytics pickles models."""
    if part.training:
        STARTS.append({key: x.clone() for key, x in part.rankings.state_dict().items()})


def put(model, loss):
    use_ranking_loss(model, loss)
    # The head, not its auxiliary one; the decoder, not that of the average.
    first = next(x for x in ranking_parts(model) if hasattr(x, 'rankings'))
    first.register_forward_pre_hook(note)
    return model


def states_in(state, prefix=''):
    """The state of the losses in a ``state_dict``."""
    marked = {key.removeprefix(prefix): x for key, x in state.items() if key.startswith(prefix)}
    return {k.split('rankings.')[1]: x for k, x in marked.items() if 'rankings.' in k}


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Ten images of two rectangles in the colours of their classes, and four to validate on."""
    root = tmp_path_factory.mktemp('data')
    rng = np.random.default_rng(0)
    for split, number in (('train', 10), ('val', 4)):
        (root / 'images' / split).mkdir(parents=True)
        (root / 'labels' / split).mkdir(parents=True)
        for i in range(number):
            image = rng.integers(0, 60, (64, 64, 3), dtype=np.uint8)
            rows = []
            for label, w, h in zip(rng.integers(0, 3, 2), *rng.integers(16, 28, (2, 2))):
                x, y = rng.integers(0, 64 - w), rng.integers(0, 64 - h)
                image[y : y + h, x : x + w, label] = 250
                box = np.array([x + w / 2, y + h / 2, w, h]) / 64
                rows.append(f'{label} {" ".join(map(str, box))}')
            Image.fromarray(image).save(root / f'images/{split}/{i}.png')
            (root / f'labels/{split}/{i}.txt').write_text('\n'.join(rows))
    text = f'path: {root}\ntrain: images/train\nval: images/val\nnc: 3\nnames: {NAMES}\n'
    (root / 'data.yaml').write_text(text)
    return root


class Ultralytics:
    """YOLO26. Its checkpoints have the averaged model alone, in half precision."""

    package = 'ultralytics'

    def train(self, data, out, resume):
        from ultralytics import YOLO
        from ultralytics.models.yolo.detect import DetectionTrainer

        class RankedTrainer(DetectionTrainer):
            def get_model(self, cfg=None, weights=None, verbose=True):
                model = put(super().get_model(cfg, weights, verbose), GradedAPLoss())
                if weights:
                    model.load(weights)
                return model

        def stop(trainer):
            if trainer.epoch == 1:
                raise Stopped

        last = out / 'run/weights/last.pt'
        if resume:
            self.detector = YOLO(last)
            self.detector.train(resume=True, trainer=RankedTrainer)
            return
        detector = YOLO('yolo26n.yaml')
        detector.add_callback('on_train_epoch_start', stop)
        options = dict(epochs=2, imgsz=64, batch=5, workers=0, device='cpu', plots=False)
        with pytest.raises(Stopped):
            detector.train(
                data=data / 'data.yaml', trainer=RankedTrainer, project=out, name='run', **options
            )
        self.saved = states_in(torch.load(last, weights_only=False)['ema'].state_dict())

    def predict(self, image):
        found = self.detector.predict(image, conf=0.01, imgsz=64, verbose=False)[0].boxes.data
        return found

    def exported(self, image, out):
        from ultralytics import YOLO

        file = self.detector.export(format='onnx', imgsz=64)
        found = YOLO(file, task='detect').predict(image, conf=0.01, imgsz=64, verbose=False)
        return found[0].boxes.data

    def leave(self):
        remove_ranking_loss(self.detector)


class LibreYOLO:
    """Its trainer gets the loss in ``on_setup``; what exports is the model that was trained."""

    package = 'libreyolo'

    def __init__(self, family, trainer, model, size, pixels):
        self.names = family, trainer, model
        self.part = 'head.' if family == 'yolo9' else ''
        self.options = dict(imgsz=pixels, batch=5, workers=0, device='cpu')
        self.size = size

    def train(self, data, out, resume):
        family, name, model = self.names
        home = f'libreyolo.models.{family}.'
        module = importlib.import_module(home + 'trainer')
        base = getattr(module, name)

        class RankedTrainer(base):
            def on_setup(self):
                super().on_setup()
                put(self.model if family == 'yolo9' else self, GradedAPLoss())

        wrapper = getattr(importlib.import_module(home + 'model'), model)
        self.detector = wrapper(None, size=self.size, nb_classes=3)
        last = out / 'run/weights/last.pt'
        options = dict(self.options, project=str(out), name='run', exist_ok=True)
        if resume:
            options['resume'] = str(last)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, RankedTrainer)
            self.detector.train(data=str(data / 'data.yaml'), epochs=1 + resume, **options)
        self.detector.model.eval()  # its DETRs stay in training mode
        if not resume:
            checkpoint = torch.load(last, weights_only=False)
            self.saved = states_in(checkpoint['train_model'], self.part)
            averaged = states_in(checkpoint['ema'], self.part)
            assert all(averaged[key] > 0 for key in averaged if key.endswith('num_updates'))

    def predict(self, image):
        return boxes_of(self.detector, image, self.options['imgsz'])

    def exported(self, image, out):
        from libreyolo import LibreYOLO

        file = self.detector.export(format='onnx', imgsz=self.options['imgsz'])
        return boxes_of(LibreYOLO(file, device='cpu'), image, self.options['imgsz'])

    def leave(self):
        remove_ranking_loss(self.detector)


def boxes_of(detector, image, pixels):
    boxes = detector.predict(image, conf=0.01, imgsz=pixels).boxes
    columns = [torch.as_tensor(x) for x in (boxes.xyxy, boxes.conf[:, None], boxes.cls[:, None])]
    return torch.cat(columns, 1)


class Lightly:
    """LTDETR in its default precision, bfloat16. What it exports is its own averaged model."""

    package = 'lightly_train'
    detector = None

    def train(self, data, out, resume):
        import lightly_train
        from lightly_train._commands import train_task_helpers
        from lightly_train._task_models.ltdetr_object_detection import train_model

        class RankedLTDETR(train_model.LTDETRObjectDetectionTrain):
            def __init__(self, **settings):
                super().__init__(**settings)
                put(self, StableAPLoss())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(train_task_helpers, 'TASK_TRAIN_MODEL_CLASSES', [RankedLTDETR])
            lightly_train.train_object_detection(
                out=out / 'run',
                model='dinov2/_vittest14-ltdetrv2',
                data=dict(
                    path=str(data),
                    train='images/train',
                    val='images/val',
                    names=dict(enumerate(NAMES)),
                ),
                steps=1 + resume,
                batch_size=5,
                gradient_accumulation_steps=1,
                num_workers=0,
                accelerator='cpu',
                devices=1,
                transform_args=dict(image_size=(112, 112)),
                logger_args=dict(val_every_num_steps=1),
                resume_interrupted=resume,
            )
        if resume:
            self.detector = lightly_train.load_model(out / 'run/exported_models/exported_last.pt')
        else:
            checkpoint = torch.load(out / 'run/checkpoints/last.ckpt', weights_only=False)
            self.saved = states_in(checkpoint['train_model'], 'model.')
            averaged = states_in(checkpoint['train_model'], 'ema_model.')
            assert all(averaged[key].any() for key in averaged if key.endswith('last.num_updates'))

    def predict(self, image):
        return self.columns(self.detector.predict(image, threshold=0.01))

    def columns(self, found):
        return torch.cat([found['bboxes'], found['scores'][:, None], found['labels'][:, None]], 1)

    def exported(self, image, out):
        import onnxruntime
        from lightly_train._models.dinov2_vit.dinov2_vit_src.models import vision_transformer

        with pytest.MonkeyPatch.context() as patch:
            # torch 2.12 cannot trace its context variable, in the stock model neither.
            asks = 'is_in_precalculate_for_onnx_export'
            patch.setattr(vision_transformer, asks, lambda: False)
            self.detector.export_onnx(out / 'a.onnx')
        before, after = self.detector.preprocessor, self.detector.postprocessor
        pixels, sizes = before.preprocess_image(image, device='cpu', dtype=torch.float32)
        batch = before.preprocess_batch(pixels[None])
        session = onnxruntime.InferenceSession(out / 'a.onnx')
        arrays = session.run(None, {session.get_inputs()[0].name: batch.numpy()})
        raw = SimpleNamespace(logits=torch.from_numpy(arrays[0]), boxes=torch.from_numpy(arrays[1]))
        return self.columns(after.postprocess(raw, [sizes], 0.01)[0])

    def leave(self):
        assert not any('rankings' in key for key in self.detector.state_dict())


LIBRARIES = {
    'YOLO26': Ultralytics(),
    'LibreYOLO9': LibreYOLO('yolo9', 'YOLO9Trainer', 'LibreYOLO9', 't', 64),
    'LibreDEIMv2': LibreYOLO('deimv2', 'DEIMv2Trainer', 'LibreDEIMv2', 'atto', 160),
    'LTDETR': Lightly(),
}


@pytest.mark.slow
@pytest.mark.parametrize('kind', LIBRARIES)
def test_a_trainer_trains_resumes_and_exports(kind, data, tmp_path, monkeypatch):
    library = LIBRARIES[kind]
    pytest.importorskip(library.package)
    pytest.importorskip('onnxruntime')
    monkeypatch.chdir(tmp_path)
    STARTS.clear()
    library.train(data, tmp_path, resume=False)
    assert len(STARTS) == (1 if kind == 'LTDETR' else 2)
    assert not any(x.any() for key, x in STARTS[0].items() if key.endswith('num_updates'))
    STARTS.clear()
    library.train(data, tmp_path, resume=True)
    # The first step has the state that was saved, to the bit, and it was of a training.
    torch.testing.assert_close(STARTS[0], library.saved, rtol=0, atol=0)
    assert all(x.all() for key, x in STARTS[0].items() if key.endswith('positive.num_updates'))
    image = str(data / 'images/val/0.png')
    shown = library.predict(image)
    assert len(shown)
    found = library.exported(image, tmp_path)
    gaps = distances(found, shown)
    assert max(gaps.amin(0).max(), gaps.amin(1).max()) < 0.05
    library.leave()
    left = library.predict(image)
    gaps = distances(left, shown)
    torch.testing.assert_close(left[gaps.argmin(0)], shown, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(left, shown[gaps.argmin(1)], rtol=1e-4, atol=1e-4)


def distances(found, shown):
    """Of each box to each of the other: equal scores may come in another order."""
    assert found.shape == shown.shape
    return torch.cdist(found, shown, compute_mode='donot_use_mm_for_euclid_dist')
