"""Small detectors of other libraries, trained by the libraries' own trainers and recipes.

Each function trains from random weights and returns what finds boxes in an image file: (n, 4)
corners in pixels, (n,) scores and (n,) classes.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from mmrank.adapters import use_ranking_loss
from mmrank.losses import HeadLoss

Find = Callable[[str], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Training:
    """What all trainers are told."""

    data: Path  # A folder of write_yolo_files
    out: Path
    names: list[str]
    epochs: int
    seed: int
    size: int  # Of the square images
    batch: int
    factor: float  # Of the library's weight of the class loss
    loss: HeadLoss | None  # None: the library's own


def ultralytics(model: str, training: Training) -> Find:
    """YOLO of Ultralytics; the averaged weights of the last epoch."""
    from ultralytics import YOLO
    from ultralytics.models.yolo.detect import DetectionTrainer

    class Trainer(DetectionTrainer):
        def get_model(self, cfg=None, weights=None, verbose=True):
            made = super().get_model(cfg, weights, verbose)
            return made if training.loss is None else use_ranking_loss(made, training.loss)

    YOLO(f'{model}.yaml').train(
        data=training.data / 'data.yaml',
        trainer=Trainer,
        epochs=training.epochs,
        batch=training.batch,
        imgsz=training.size,
        seed=training.seed,
        cls=0.5 * training.factor,
        project=training.out.resolve(),
        name='run',
        exist_ok=True,
        workers=0,
        device='cpu',
        plots=False,
        val=False,
        verbose=False,
    )
    detector = YOLO(training.out / 'run/weights/last.pt')

    def find(file: str) -> tuple[Tensor, Tensor, Tensor]:
        options = dict(conf=0.001, imgsz=training.size, max_det=100, verbose=False)
        boxes = detector.predict(file, device='cpu', **options)[0].boxes
        return boxes.xyxy, boxes.conf, boxes.cls

    return find


def libreyolo(model: str, training: Training) -> Find:
    """``FAMILY-SIZE`` of LibreYOLO; the weights of the last epoch, averaged for YOLO.

    Its DETRs hold the averaged weights still in the last epochs. Where a training has fewer epochs
    than that, the average keeps the weights of the beginning.
    """
    family, size = model.split('-')
    trainers = importlib.import_module(f'libreyolo.models.{family}.trainer')
    models = importlib.import_module(f'libreyolo.models.{family}.model')
    suffix = {'yolo9': 'YOLO9', 'deimv2': 'DEIMv2', 'dfine': 'DFINE'}[family]
    is_yolo = family == 'yolo9'

    class Trainer(getattr(trainers, f'{suffix}Trainer')):
        def on_setup(self):
            super().on_setup()
            if not is_yolo:
                (key,) = {'loss_vfl', 'loss_mal'} & {*self.criterion.weight_dict}
                self.criterion.weight_dict[key] *= training.factor
            if training.loss is not None:
                use_ranking_loss(self.model if is_yolo else self, training.loss)
            if is_yolo:
                for module in self.model.modules():
                    if hasattr(module, '_get_loss_fn'):
                        module._get_loss_fn(self.device).cls_weight *= training.factor

    detector = getattr(models, f'Libre{suffix}')(None, size=size, nb_classes=len(training.names))
    with mock.patch.object(trainers, f'{suffix}Trainer', Trainer):
        results = detector.train(
            data=str(training.data / 'data.yaml'),
            epochs=training.epochs,
            batch=training.batch,
            imgsz=training.size,
            seed=training.seed,
            project=str(training.out),
            name='run',
            exist_ok=True,
            workers=0,
            device='cpu',
            eval_interval=training.epochs,
            ema=is_yolo,
        )
    last = torch.load(results['last_checkpoint'], weights_only=False)
    detector.model.load_state_dict(last['model'])
    detector.model.eval()

    def find(file: str) -> tuple[Tensor, Tensor, Tensor]:
        boxes = detector.predict(file, conf=0.001, imgsz=training.size).boxes
        found = [torch.as_tensor(x) for x in (boxes.xyxy, boxes.conf, boxes.cls)]
        return found[0], found[1], found[2]

    return find


def lightly(model: str, training: Training) -> Find:
    """LTDETR of lightly-train; the averaged weights of the last step."""
    import lightly_train
    from lightly_train._commands import train_task_helpers
    from lightly_train._task_models.ltdetr_object_detection import train_model

    class Trained(train_model.LTDETRObjectDetectionTrain):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.criterion.weight_dict['loss_vfl'] *= training.factor
            if training.loss is not None:
                use_ranking_loss(self, training.loss)

    images = len([*(training.data / 'images/train').iterdir()])
    steps = max(1, training.epochs * images // training.batch)
    classes = [Trained]
    with mock.patch.object(train_task_helpers, 'TASK_TRAIN_MODEL_CLASSES', classes):
        lightly_train.train_object_detection(
            out=training.out / 'run',
            model=model,
            data=dict(
                path=str(training.data.resolve()),
                train='images/train',
                val='images/val',
                names=dict(enumerate(training.names)),
            ),
            steps=steps,
            batch_size=training.batch,
            gradient_accumulation_steps=1,
            seed=training.seed,
            num_workers=0,
            accelerator='cpu',
            devices=1,
            precision='32-true',
            overwrite=True,
            transform_args=dict(image_size=(training.size, training.size)),
            logger_args=dict(val_every_num_steps=steps),
        )
    detector = lightly_train.load_model(training.out / 'run/exported_models/exported_last.pt')

    def find(file: str) -> tuple[Tensor, Tensor, Tensor]:
        found = detector.predict(file, threshold=0.001)
        return found['bboxes'], found['scores'], found['labels']

    return find


TRAINERS = {'ultralytics': ultralytics, 'libreyolo': libreyolo, 'lightly_train': lightly}
