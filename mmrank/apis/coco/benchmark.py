"""Figures and curves of several detectors on one annotation file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmrank.apis.coco.box_evaluation import check_predictions, load_predictions, summary
from mmrank.apis.coco.evaluators import BoxEvaluator, evaluate_lvis, find_evaluator, lvis_summary
from mmrank.apis.coco.pr_curves import PRCurves
from mmrank.apis.coco.runs import ModelResult
from mmrank.apis.coco.tables import BenchmarkRow
from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.coco_reading import read_coco_json
from mmrank.datasets.lvis_annotations import is_lvis
from mmrank.errors import UserError
from mmrank.evaluation.lvis_numpy import require_lvis

_HIDDEN_FIGURES = ('ARs', 'ARm', 'ARl')


@dataclass
class CocoBenchmark:
    """Everything that the table and the pictures are made of, by model name."""

    ann_file: Path
    num_images: int
    evaluator: str
    notes: list[str]
    rows: list[BenchmarkRow] = field(default_factory=list)
    curves: dict[str, PRCurves] = field(default_factory=dict)
    evaluations: dict[str, Any] = field(default_factory=dict)

    @property
    def is_lvis(self) -> bool:
        """Whether the annotations are LVIS's."""
        return self.evaluator == 'lvis'

    def _add(self, result, evaluation, figures, curves) -> None:
        self.rows.append(BenchmarkRow(result.name, figures, curves.by_class(), result.record))
        self.curves[result.name] = curves
        self.evaluations[result.name] = evaluation


def read_models(
    results: Sequence[ModelResult], document: Mapping
) -> tuple[dict[str, list[dict]], list[str]]:
    """Read and check the predictions of all models."""
    image_ids = {image['id'] for image in document['images']}
    category_ids = {cat['id'] for cat in document['categories']}
    models = {}
    notes = []
    for result in results:
        boxes = load_predictions(result.predictions)
        where = f'predictions of {result.name!r} ({result.predictions})'
        check_predictions(boxes, image_ids, category_ids, where)
        if not boxes:
            raise UserError(
                f'there are no boxes in the {where}. Fix: lower test_cfg.score_thr of the detector'
            )
        shown = {box['image_id'] for box in boxes}
        bare = [image['id'] for image in document['images'] if image['id'] not in shown]
        if bare:
            notes.append(
                f'{result.name}: {len(bare)} of {len(image_ids)} images have no prediction, for '
                f'example image_id {bare[0]}. Their objects count as missed. If these images were '
                'not tested, test the whole split.'
            )
        models[result.name] = boxes
    return models, notes


def run_benchmark(
    results: Sequence[ModelResult],
    ann_file: Path,
    on_step: Callable[[str], None] = lambda text: None,
) -> CocoBenchmark:
    """Evaluate models on one annotation file."""
    on_step('reading annotations')
    document = read_coco_json(ann_file)
    inspect_coco(document, ann_file, federated=is_lvis(document)).raise_if_bad()
    evaluator = None
    if is_lvis(document):
        require_lvis()
    else:
        evaluator = find_evaluator()
    on_step('reading predictions')
    models, notes = read_models(results, document)
    name = evaluator.name if evaluator else 'lvis'
    benchmark = CocoBenchmark(ann_file, len(document['images']), name, notes)
    if evaluator:
        _evaluate_coco(benchmark, evaluator, models, results, on_step)
    else:
        _evaluate_lvis(benchmark, models, results, on_step)
    return benchmark


def _evaluate_coco(
    benchmark: CocoBenchmark,
    evaluator: BoxEvaluator,
    models: Mapping[str, list[dict]],
    results: Sequence[ModelResult],
    on_step: Callable[[str], None],
) -> None:
    truth = evaluator.load_truth(benchmark.ann_file)
    for result in results:
        on_step(f'{result.name}: {evaluator.name}')
        evaluation = evaluator.evaluate(truth, models[result.name])
        figures = {k: v for k, v in summary(evaluation).items() if k not in _HIDDEN_FIGURES}
        benchmark._add(result, evaluation, figures, PRCurves.from_coco_eval(evaluation))


def _evaluate_lvis(
    benchmark: CocoBenchmark,
    models: Mapping[str, list[dict]],
    results: Sequence[ModelResult],
    on_step: Callable[[str], None],
) -> None:
    for result in results:
        on_step(f'{result.name}: lvis')
        evaluation = evaluate_lvis(benchmark.ann_file, models[result.name])
        curves = PRCurves.from_lvis_eval(evaluation)
        benchmark._add(result, evaluation, lvis_summary(evaluation), curves)
