"""Detectors of other libraries, by their own trainers and recipes, for a budget of CPU seconds.

Run it in an environment that has the libraries. Sets: ``data`` is a folder with ``images`` and
``annotations/{train,val,test}.json`` in the form of COCO. Methods: ``library`` and ``model`` (see
detectors/other_libraries/trainers.py), ``loss`` (by default the library's own), ``factor`` of its
weight of the class loss, ``size``, ``batch`` and ``budget``, the seconds of a training: so many
epochs are trained as it holds, measured once for each model. A trial is measured on the validation
images, all others on the test images.
"""

import json
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from detectors.other_libraries.trainers import TRAINERS, Find, Training
from detectors.other_libraries.yolo_files import write_yolo_files
from mmrank.evaluation.box_evaluation import evaluate_boxes, summary
from mmrank.experiments.records import TUNE
from plans.reader import Plan
from plans.study_plan import loss_of

FIGURES = ('mAP', 'AP50', 'AP75')
WORK = Path('work_dirs/other_libraries')
SHOWN = 100


def prepare(plan: Plan) -> tuple[Path, Path, list[str]]:
    """The data, the same as files of YOLO, and the names of the classes."""
    source = Path(plan.fields['data'])
    folder = WORK / 'data' / source.name
    return source, folder, write_yolo_files(source, folder)


def train(
    facts: dict, settings: dict, data: tuple[Path, Path, list[str]]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train once; epochs and figures."""
    source, folder, names = data
    epochs = max(1, int(settings['budget'] / seconds_of_epoch(settings, folder, names)))
    find = _train(settings, folder, names, epochs, facts['seed'])
    split = 'val' if facts['stage'] == TUNE else 'test'
    yield epochs, measure(find, source / f'annotations/{split}.json', folder / 'images' / split)


def _train(settings: dict, folder: Path, names: list[str], epochs: int, seed: int) -> Find:
    out = WORK / 'run'
    shutil.rmtree(out, ignore_errors=True)
    loss = settings.get('loss')
    training = Training(
        data=folder,
        out=out,
        names=names,
        epochs=epochs,
        seed=seed,
        size=settings['size'],
        batch=settings['batch'],
        factor=settings.get('factor', 1.0),
        loss=None if loss is None else loss_of(loss),
    )
    torch.manual_seed(seed)
    return TRAINERS[settings['library']](settings['model'], training)


def seconds_of_epoch(settings: dict, folder: Path, names: list[str]) -> float:
    """CPU seconds of an epoch with the library's own loss, measured once for each model and set."""
    file = WORK / 'epochs.json'
    known = json.loads(file.read_text('utf-8')) if file.is_file() else {}
    key = ' '.join(str(settings[x]) for x in ('library', 'model', 'size', 'batch'))
    key = f'{folder.name} {key}'
    if key not in known:
        # In another process, since its seconds are not of the training.
        with multiprocessing.get_context('spawn').Pool(1) as pool:
            known[key] = pool.apply(_probe, (settings, folder, names))
        file.write_text(json.dumps(known, indent=1), 'utf-8')
    return known[key]


def _probe(settings: dict, folder: Path, names: list[str]) -> float:
    torch.set_num_threads(1)
    stock = {**settings, 'loss': None}
    seconds = []
    for epochs in (1, 2):
        begin = time.process_time()
        _train(stock, folder, names, epochs, seed=0)
        seconds.append(time.process_time() - begin)
    # The first has what is loaded once.
    return max(seconds[1] - seconds[0], seconds[1] / 4)


def measure(find: Find, annotations: Path, images: Path) -> dict[str, float]:
    """COCO's figures of the boxes that are found in the images of a split."""
    document = json.loads(annotations.read_text('utf-8'))
    categories = sorted(x['id'] for x in document['categories'])
    found = []
    for image in document['images']:
        boxes, scores, labels = find(str(images / image['file_name']))
        best = scores.argsort(descending=True)[:SHOWN]
        for box, score, label in zip(boxes[best], scores[best], labels[best]):
            x0, y0, x1, y1 = box.tolist()
            bbox = [x0, y0, max(x1 - x0, 0.0), max(y1 - y0, 0.0)]
            category = categories[int(label)]
            item = dict(image_id=image['id'], category_id=category, bbox=bbox, score=float(score))
            found.append(item)
    if not found:
        return dict.fromkeys(FIGURES, 0.0)
    figures = summary(evaluate_boxes(annotations, found))
    return {name: figures[name] for name in FIGURES}
