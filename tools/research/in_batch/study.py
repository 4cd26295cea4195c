"""A cell of the study of in-batch sampling, tables 5 and 6: a method of a plan."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from in_batch.search import SearchRule, minimise_by_lbfgs, search_learning_rate
from in_batch.training import StepwiseTraining, TwoTowerData, emulated_omega
from mmrank.errors import UserError

#: Metric by which the best batch ratio of pos_neg is chosen.
CHOICE = 'top_k/precision@5'
#: What a plan may set: of the search for a learning rate, and of L-BFGS.
_RULE = ('first_exponent', 'divergence', 'patience', 'checks_per_epoch')
_LIMITS = ('max_iterations', 'tolerance')


def chosen_omega(pointwise: str, cells: Iterable[Mapping], data: TwoTowerData) -> float:
    """Weight of the negatives: the weight of pos_neg at its best batch ratio (section 6.1.2)."""
    wanted = (pointwise, 'pos_neg', False)
    sampled = [x for x in cells if (x['pointwise'], x['mode'], x['full']) == wanted]
    if not sampled:
        raise UserError(
            f'{pointwise} unbiased_omega takes the omega of pos_neg at its best batch ratio, '
            'but no cell of pos_neg is finished. Fix: pos_neg before it in the plan'
        )
    best = max(sampled, key=lambda x: x['best'].get(CHOICE, 0.0))
    return emulated_omega(data.batch_size(best['batch_ratio']), data.num_positives)


def run_cell(
    cell: Mapping,
    data: TwoTowerData,
    cells: Iterable[Mapping],
    all_pairs: dict,
    seed: int = 0,
    device: str = 'cpu',
    report=None,
) -> dict:
    """Train a cell of a plan, given the results of those before it."""
    mode, pointwise, full = cell['mode'], cell['pointwise'], cell.get('full', False)
    ratio = cell.get('batch_ratio')
    size = None if ratio is None else data.batch_size(ratio)
    loss = dict(type='mmrank.InBatchLoss', mode=mode, pointwise=pointwise)
    if mode.endswith('_omega'):
        emulated = full and emulated_omega(size, data.num_positives)
        loss['omega'] = emulated or chosen_omega(pointwise, cells, data)
    if full:
        # It draws no batch; 2 pairs are always there to draw.
        training = StepwiseTraining(data, loss, 2, None, seed, device)
        objective = training.full_objective(all_pairs)
        limits = {key: cell[key] for key in _LIMITS if key in cell}
        model = training.model.double()
        found = minimise_by_lbfgs(model, objective, **limits, evaluate=data.evaluate, report=report)
        outcome = asdict(found)
    else:

        def start(lr):
            training = StepwiseTraining(data, loss, size, lr, seed, device)
            training.objective(all_pairs)
            return training

        rule = {key: cell[key] for key in _RULE if key in cell}
        rule = SearchRule(**rule, max_steps=cell.get('max_steps', {}).get(ratio))
        training, diverged = search_learning_rate(start, rule, report)
        outcome = dict(asdict(training), diverged=[x.lr for x in diverged])
    made = dict(pointwise=pointwise, mode=mode, full=full, batch_ratio=ratio)
    return made | dict(batch_size=size, omega=loss.get('omega')) | outcome
