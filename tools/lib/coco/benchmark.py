"""Figures and curves of several detectors on one annotation file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lib.coco.box_evaluation import check_predictions, load_predictions, summary
from lib.coco.evaluators import (
    BoxEvaluator,
    check_equality,
    evaluate_lvis,
    find_evaluators,
    lvis_summary,
)
from lib.coco.pr_curves import PRCurves
from lib.coco.runs import ModelResult
from lib.coco.tables import BenchmarkRow
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
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def is_lvis(self) -> bool:
        """Whether the annotations are LVIS's."""
        return self.evaluator == 'lvis'

    def _add(self, result, evaluation, figures, curves) -> None:
        self.rows.append(BenchmarkRow(result.name, figures, curves.by_class(), result.record))
        self.curves[result.name] = curves
        self.evaluations[result.name] = evaluation


def read_models(
    results: Sequence[ModelResult], document: Mapping, *, allow_empty: bool = False
) -> tuple[dict[str, list[dict]], list[str]]:
    """Read and check the predictions of all models."""
    image_ids = {image['id'] for image in document['images']}
    category_ids = {cat['id'] for cat in document['categories']}
    models, notes = {}, []
    for result in results:
        boxes = load_predictions(result.predictions)
        where = f'predictions of {result.name!r} ({result.predictions})'
        check_predictions(boxes, image_ids, category_ids, where)
        if not boxes and not allow_empty:
            raise UserError(
                f'there are no boxes in the {where}. Fix: lower test_cfg.score_thr of the '
                'detector; --allow-empty shows it with an AP of 0.'
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
    *,
    evaluator: str = 'auto',
    allow_empty: bool = False,
    on_step: Callable[[str], None] = lambda text: None,
) -> CocoBenchmark:
    """Evaluate models on one annotation file."""
    on_step('reading annotations')
    document = read_coco_json(ann_file)
    evaluators = []
    inspect_coco(document, ann_file, federated=is_lvis(document)).raise_if_bad()
    if is_lvis(document):
        if evaluator != 'auto':
            raise UserError(
                f'evaluator {evaluator!r} does not support LVIS, and {ann_file} has LVIS '
                'annotations. Fix: remove --evaluator; lvis evaluates them.'
            )
        require_lvis()
    else:
        evaluators = find_evaluators(evaluator)
    on_step('reading predictions')
    models, notes = read_models(results, document, allow_empty=allow_empty)
    name = evaluators[0].name if evaluators else 'lvis'
    benchmark = CocoBenchmark(ann_file, len(document['images']), name, notes)
    if evaluators:
        _evaluate_coco(benchmark, evaluators, models, results, on_step)
    else:
        _evaluate_lvis(benchmark, models, results, on_step)
    return benchmark


def _evaluate_coco(
    benchmark: CocoBenchmark,
    evaluators: Sequence[BoxEvaluator],
    models: Mapping[str, list[dict]],
    results: Sequence[ModelResult],
    on_step: Callable[[str], None],
) -> None:
    truths = [one.load_truth(benchmark.ann_file) for one in evaluators]
    benchmark.seconds = {one.name: {} for one in evaluators}
    largest = 0.0
    for result in results:
        evaluations = []
        for one, truth in zip(evaluators, truths):
            on_step(f'{result.name}: {one.name}')
            evaluation, seconds = one.evaluate(truth, models[result.name])
            evaluations.append(evaluation)
            benchmark.seconds[one.name][result.name] = seconds
        first, *others = evaluations
        for other in others:
            largest = max(largest, check_equality(first, other, result.name))
        figures = {k: v for k, v in summary(first).items() if k not in _HIDDEN_FIGURES}
        curves = PRCurves.from_coco_eval(first)
        benchmark._add(result, first, figures, curves)
    if len(evaluators) > 1:
        slow, fast = (sum(t.values()) for t in benchmark.seconds.values())
        names = ' and '.join(benchmark.seconds)
        benchmark.notes.append(
            f'{names} agree on every figure (largest difference {largest:.1e}); {slow:.2f} s '
            f'against {fast:.2f} s, a ratio of {slow / fast:.1f}.'
        )


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
