"""Every registered loss of mmrank, and batches of what it accepts.

A new loss is in the list because it is registered; :data:`ROWS` has what cannot be read from it.
Below are random scores, classes and views for what is not about every loss. The arguments of
``forward`` decide what a loss is called with:

========== =============================== ==============================
kind       ``forward`` or method takes     one entry of the batch
========== =============================== ==============================
rows       ``cls_score, target``           a row of scores and its class
weighted_  any of these, and ``weight``    the same, and how often it counts
queries    ``embedding_loss(batch)``       an embedding and its class
views      ``view1, view2, sample_idx``    two embeddings of a sample
pairs      ``left, right, rows, cols``     a positive pair and its numbers
========== =============================== ==============================
"""

import inspect
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path

import torch
from torch import nn

from mmrank.losses import EmbeddingBatch, EmbeddingLoss
from mmrank.losses.ranking.sodeep import RankSorter
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES
from mmrank.registry import MODELS
from mmrank.state import SampleTemperature, TemperatureStep
from mmrank.tensors import unit_rows
from mmrank.testing import Batch, Call, Subject
from mmrank.testing.calls import _call_in_order, total

CLASSES, SAMPLES, WIDTH = 3, 40, 8
HERE = 'tests/helpers/subjects.py'
COUNTED = dict(class_counts=[25, 10, 5], num_classes=CLASSES)
PER_SAMPLE = dict(num_samples=SAMPLES)
BOTH_MODES = [{}, dict(mode='per_class')]


def sorter_file() -> str:
    """A sorter with random weights, for what is not about its ranks."""
    path = str(Path(tempfile.mkdtemp(prefix='sorter_')) / 'sorter.pth')
    with torch.random.fork_rng():
        torch.manual_seed(0)
        RankSorter(80, 'pairs', hidden=4, layers=1).save(path, 20.0)
    return path


SORTER = dict(sorter=sorter_file())


@dataclass(frozen=True)
class Row:
    """What is known of a registered loss."""

    #: Arguments that have no default, and other settings to test.
    settings: Sequence[dict] = ({},)
    #: Why the gradient is not the derivative of the value that it shows.
    own_gradient: str = ''
    is_pointwise: bool = False  # A cross-entropy is infinite where a score is
    takes_weights: bool = True  # Other than 0 and 1, of scores
    is_one_graph: bool = True  # Miners and distances find pairs by nonzero


#: The losses of which more is known than their defaults.
ROWS = {
    'ALRPLoss': Row(
        [dict(balance_period=2), dict(mode='per_class')], own_gradient='error-driven update'
    ),
    'APLoss': Row([*BOTH_MODES, dict(quality=0.9)], own_gradient='error-driven update'),
    'AsymmetricLoss': Row(
        [
            dict(num_classes=CLASSES),
            dict(num_classes=CLASSES, gamma_neg=0.5, gamma_pos=1.0, clip=0.0),
        ],
        is_pointwise=True,
    ),
    'AUCLoss': Row([*BOTH_MODES, dict(surrogate='one_sided_huber', tau=0.5, activation='sigmoid')]),
    'AUCMLoss': Row([{}, dict(num_classes=CLASSES, mode='per_class', margin=0.5)]),
    'BalancedSoftmaxLoss': Row([COUNTED], is_pointwise=True),
    'BimodalISogCLRLoss': Row([PER_SAMPLE]),
    'BlackBoxAPLoss': Row([*BOTH_MODES], own_gradient='difference to a perturbed ranking'),
    'ClassBalancedCELoss': Row([dict(COUNTED, use_sigmoid=True), COUNTED], is_pointwise=True),
    'CLIPLoss': Row([dict(tau=0.3), dict(tau=0.3, learnable=False)]),
    'CyCLIPLoss': Row([dict(tau=0.3)]),
    'DRLoss': Row([*BOTH_MODES]),
    'FlatCLRLoss': Row([{}, dict(bimodal=True)]),
    'GradedAPLoss': Row(own_gradient='error-driven update'),
    'HAPLoss': Row([dict(tau=0.3, alpha=2.0, mode='per_class')]),
    'IABCELoss': Row(own_gradient='the target of a positive is a constant', is_pointwise=True),
    'InBatchLoss': Row([*(dict(mode=mode) for mode in IN_BATCH_MODES), dict(pointwise='logistic')]),
    'InBatchSoftmaxLoss': Row(
        [
            dict(frequency='counts', tau=0.5, loss_weight=2.0),
            dict(frequency='counts', refined=True),
            dict(frequency='none'),
        ]
    ),
    'IndividualCLIPLoss': Row([dict(PER_SAMPLE, tau=0.3)]),
    'InfoNCELoss': Row(
        [
            {},
            dict(bimodal=True, loss_weight=0.5, hardness_strength=9.0),
            dict(hardness_strength=2.0),
        ]
    ),
    'ISogCLRLoss': Row([PER_SAMPLE, dict(PER_SAMPLE, gradient_clip=0.1)]),
    # Of (n, C) levels it says that the columns are classes.
    'LambdaLoss': Row(
        [dict(num_classes=CLASSES), dict(scheme='ndcg_loss2', mode='per_class', tau=0.5)],
        own_gradient='the weights of the pairs are constants',
        takes_weights=False,
    ),
    'LDAMLoss': Row(
        [dict(COUNTED, scale=2.0, use_sigmoid=True), dict(COUNTED, scale=2.0)], is_pointwise=True
    ),
    'ListNetLoss': Row([dict(num_classes=CLASSES), dict(mode='per_class')]),
    'ListwiseAPLoss': Row([*BOTH_MODES]),
    'LogitAdjustedCELoss': Row(
        [dict(COUNTED, use_sigmoid=True), dict(COUNTED, tau=1.5)], is_pointwise=True
    ),
    'MALLoss': Row(own_gradient='the weight of a negative is a constant', is_pointwise=True),
    'NDCGLoss': Row(
        [dict(tau=0.3, num_classes=CLASSES), dict(tau=0.3, mode='per_class')], takes_weights=False
    ),
    'NUCLRLoss': Row([dict(PER_SAMPLE, tau=0.3, eta=0.02)]),
    'PartialAUCLoss': Row(
        [dict(max_fpr=0.4), dict(max_fpr=0.3, mode='per_class', activation='sigmoid', tau=0.5)]
    ),
    'PMLLoss': Row(
        [dict(loss=dict(type='TripletMarginLoss')), dict(loss=dict(type='FastAPLoss'))],
        is_one_graph=False,
    ),
    'QualityFocalLoss': Row([{}, dict(use_iou=False, alpha=0.25)], is_pointwise=True),
    'RankSortLoss': Row([*BOTH_MODES], own_gradient='error-driven update'),
    'RecallAtKLoss': Row([dict(ks=(1, 3), tau=0.3, mode='per_class')]),
    'ROADMAPLoss': Row([dict(tau=0.3, lam=0.3)]),
    'SigLIPLoss': Row([{}, dict(tau=0.5, loss_weight=0.5)]),
    'SimCoLoss': Row(
        [{}, dict(bimodal=False)], own_gradient='the ratio of the two temperatures is a constant'
    ),
    'SmoothAPLoss': Row([*BOTH_MODES, dict(quality=0.9, mode='per_class')]),
    'SOAPLoss': Row([dict(PER_SAMPLE, num_classes=CLASSES)]),
    'SoDeepLoss': Row([SORTER, dict(SORTER, mode='per_class')], takes_weights=False),
    'SogCLRLoss': Row(
        [
            PER_SAMPLE,
            dict(PER_SAMPLE, bimodal=True),
            dict(PER_SAMPLE, bimodal=True, tau=0.3, rho=0.5),
            dict(PER_SAMPLE, tau=0.3, rho=0.5),
        ]
    ),
    'SOPRCLoss': Row(
        [
            {},
            dict(num_classes=CLASSES, mode='per_class'),
            dict(num_classes=CLASSES, lam1=0.1, lam2=0.1),
            dict(lam1=0.1, lam2=0.5, semi_variance='batch'),
        ],
        own_gradient='the ranks among the positives are constants',
    ),
    'StableAPLoss': Row(
        [
            {},
            dict(rho=1.0),
            dict(rho='batch', activation='sigmoid', tau=0.3),
            dict(num_classes=CLASSES, mode='per_class', rho=1.0),
            dict(mean_mode=0.5, reduction='sum'),
            dict(quality=0.9),
            dict(tau='auto', num_classes=CLASSES, mode='per_class'),
            dict(quality=0.5, num_classes=CLASSES, mode='per_class'),
        ],
        own_gradient='the weights of the positives are constants',
    ),
    'SumLoss': Row(
        [
            dict(
                losses=[dict(type='mmrank.StableAPLoss'), dict(type='mmrank.AUCLoss')],
                weights=[1.0, 0.5],
            )
        ],
        own_gradient='it has StableAPLoss as a part',
    ),
    'SupAPLoss': Row([dict(tau=0.3, mode='per_class')]),
    'TempNetLoss': Row(
        [dict(PER_SAMPLE, width=WIDTH, tau_min=0.1, tau_max=0.5, dropout=0.0)],
        own_gradient='a temperature is a constant of the embedding',
    ),
    'VarifocalLoss': Row(
        [{}, dict(use_iou=False)],
        own_gradient='the weight of a negative is a constant',
        is_pointwise=True,
    ),
}


def row_of(name: str) -> Row:
    """What is known of a loss; nothing of one that is built with its defaults."""
    return ROWS.get(name, Row())


def loss_names() -> list[str]:
    """Names of all losses that mmrank registers; test files register losses of their own."""
    MODELS.import_from_location()
    return sorted(
        name
        for name, entry in MODELS.module_dict.items()
        if name.endswith('Loss') and entry.__module__.startswith('mmrank.')
    )


def box_argument(loss) -> str | None:
    """The argument in which a loss receives what it knows of the boxes."""
    return {'quality': 'quality', 'loss': 'box_loss'}.get(getattr(loss, 'box_input', None))


def call_rows(loss, scores, target, idx, boxes=None, **options):
    """The loss of rows, with indices and values of boxes where it takes them.

    Of a value for each row those count that have a class.
    """
    key = box_argument(loss)
    if key and boxes is not None:
        has_class = target > 0
        if scores.dim() > 1:
            classes = target.long()  # in eight bits 300 is 44
            has_class = (classes >= 0) & (classes < scores.size(1))
        # Of meta tensors nobody knows how many, and no loss asks.
        is_whole = boxes.is_meta or boxes.shape != has_class.shape
        options[key] = boxes if is_whole else boxes[has_class]
    if getattr(loss, 'keeps_samples', False):
        options['sample_idx'] = idx
    return total(loss(scores, target, **options))


def _of_rows(loss, scores, *rest, **weight):
    *boxes, target, idx = rest
    return call_rows(loss, scores, target, idx, *boxes, **weight)


def _of_queries(loss, embeddings, labels):
    # As the heads do.
    return loss.embedding_loss(EmbeddingBatch.of_one_batch(unit_rows(embeddings), labels))


def _of_weighted_rows(loss, *tensors):
    *tensors, weight = tensors
    return _of_rows(loss, *tensors, weight=weight)


def _of_weighted_queries(loss, embeddings, labels, weight):
    return EmbeddingLoss(loss)(embeddings, labels, weight=weight)


def _of_weighted_entries(loss, *tensors):
    *tensors, weight = tensors
    return loss(*tensors, weight=weight)


def weigh(batch, weight):
    """The batch with a weight for each entry, or None."""
    kind = f'weighted_{batch.kind}'
    return Batch(kind, batch.leaves, (*batch.fixed, weight), CALLS[kind])


def break_absent(batch, weight, label=None):
    """The batch with NaN in each entry of weight 0, and with a label of its own, or an index."""
    gone = weight == 0
    batch = batch.mapped(lambda x: x.masked_fill(gone[:, None], torch.nan) if x.dim() > 1 else x)
    if label is None:
        return batch
    if batch.kind == 'rows':
        *boxes, labels, idx = batch.fixed
        return batch.with_fixed([*boxes, torch.where(gone, label, labels), idx])
    return batch.with_fixed([x.masked_fill(gone, label) for x in batch.fixed])


CALLS = {
    'rows': _of_rows,
    'queries': _of_queries,
    'views': _call_in_order,
    'pairs': _call_in_order,
    'weighted_rows': _of_weighted_rows,
    'weighted_queries': _of_weighted_queries,
    'weighted_views': _of_weighted_entries,
    'weighted_pairs': _of_weighted_entries,
}
# Twelve training pairs of seven left and five right entities.
PAIRS = torch.arange(12) % 7, torch.arange(12) % 5


def build(name: str, settings: dict) -> nn.Module:
    """A loss that is ready to be called.

    Raises:
        LookupError: If it has an argument without default, of which nothing
            is known.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loss = MODELS.build(dict(type=f'mmrank.{name}', **settings))
    except TypeError as error:
        raise LookupError(
            f'mmrank.{name} cannot be built with {settings}: {error}. Fix: '
            f'add its arguments without default to ROWS in {HERE}.'
        ) from error
    if hasattr(loss, 'set_pairs'):
        loss.set_pairs(*PAIRS, (7, 5))
    return loss


def kinds(loss: nn.Module) -> list[str]:
    """What the loss can be called with.

    Raises:
        LookupError: If nothing is known that it accepts.
    """
    taken = inspect.signature(loss.forward).parameters
    arguments = {
        'rows': {'cls_score', 'target'},
        'views': {'view1', 'view2'},
        'pairs': {'left', 'right', 'rows', 'cols'},
    }
    found = [kind for kind, names in arguments.items() if names <= set(taken)]
    if hasattr(loss, 'embedding_loss') and _takes_queries(loss):
        found.append('queries')
    if not found:
        raise LookupError(
            f'no batch is known for mmrank.{type(loss).__name__}.forward({", ".join(taken)}). Fix: '
            f'name its arguments like one of {arguments}, or add a kind of batch to {HERE}: to '
            '`kinds`, `make` and `CALLS`.'
        )
    return found


def _takes_queries(loss: nn.Module) -> bool:
    """Whether a loss with ``embedding_loss`` does not refuse retrieval."""
    if getattr(loss, 'box_input', None):
        return False
    try:
        make('queries', loss).of(loss)
    except (TypeError, ValueError) as error:
        if 'retrieval' in str(error):
            return False
        raise
    return True


def make(kind: str, loss: nn.Module, size: int = 12, seed: int = 0) -> Batch:
    """A random float64 batch that the loss accepts.

    Args:
        kind: One of :func:`kinds` of the loss.
        loss: Decides the details: box values, classes without background.
        size: Number of entries; at most 12 for pairs.
        seed: Of the generator.
    """
    g = torch.Generator().manual_seed(seed)

    def normal(width=WIDTH):
        return torch.randn(size, width, generator=g, dtype=torch.float64)

    if kind.startswith('weighted_'):
        batch = make(kind.removeprefix('weighted_'), loss, size, seed)
        weight = torch.rand(size, generator=g, dtype=torch.float64).sub(0.2).clamp(min=0)
        return weigh(batch, weight / weight.mean())
    labels = torch.randint(CLASSES, (size,), generator=g)
    idx = torch.randperm(SAMPLES, generator=g)[:size]
    if size > 4:
        idx[-1] = idx[0]  # a sample may come up twice
    if kind == 'rows':
        leaves, fixed = [normal(CLASSES)], []
        boxes = torch.rand(size, generator=g, dtype=torch.float64)
        if getattr(loss, 'box_input', None) == 'loss':
            leaves.append(boxes)
        elif getattr(loss, 'box_input', None):
            fixed.append(boxes)
        if getattr(loss, 'use_sigmoid', True):
            # Half of the rows are background.
            background = torch.rand(size, generator=g) < 0.5
            labels = torch.where(background, CLASSES, labels)
        fixed += [labels, idx]
        return Batch(kind, tuple(leaves), tuple(fixed), CALLS[kind])
    if kind == 'queries':
        return Batch(kind, (normal(),), (labels,), CALLS[kind])
    leaves = normal(), normal()
    if kind == 'views':
        return Batch(kind, leaves, (idx,), CALLS[kind])
    order = torch.randperm(len(PAIRS[0]), generator=g)[:size]
    return Batch(kind, leaves, (PAIRS[0][order], PAIRS[1][order]), CALLS[kind])


#: What each registered loss promises beyond the usual checks.
PROMISES = {'no_element', 'infinities', 'computes_in_float32', 'compile', 'meta'}
PROMISES |= {'zero_row', 'value_alone', 'built_on_meta', 'function_transform'}


def _tensors(case: 'Case', size: int, seed: int):
    batch = case.batch(size, seed)
    return batch.leaves, batch.fixed


def _of_one_class(x, y):
    """No other sample, or the labels of one class alone; a row has its index behind its label."""
    labels = max(len(y) - 2, 0)
    return [torch.zeros_like(t) if i == labels else t for i, t in enumerate(y)]


def _of_no_class(kind: str, loss: nn.Module, x, y):
    """Background, or queries that are alone."""
    if kind == 'queries':
        return [torch.arange(len(y[0]))]
    *boxes, labels, idx = y
    # A softmax has no background.
    other = CLASSES if getattr(loss, 'use_sigmoid', True) else 1
    return [*boxes, torch.full_like(labels, other), idx]


def subject_of_case(case: 'Case') -> Subject:
    """A registered loss as mmrank.testing checks it."""
    alone = partial(_of_no_class, case.kind, case.build())
    call = Call(
        case.kind,
        partial(_tensors, case),
        CALLS[case.kind],
        no_positives=alone if case.kind in ('rows', 'queries') else None,
        all_positives=_of_one_class if case.kind in ('rows', 'queries', 'views') else None,
    )
    excused = {}
    row = row_of(case.name)
    if row.is_pointwise or case.kind != 'rows':
        excused['infinities'] = 'only what ranks scores takes them'
    if case.settings.get('mode') == 'sogram':
        excused['permutation'] = 'a sample is two rows'
    if case.settings.get('learnable') is False:
        excused['built_on_meta'] = 'a temperature that is fixed is in no checkpoint'
    if not row.is_one_graph:
        excused.update(compile='it breaks the graph', meta='it looks at values')
    # The weights of negatives by their hardness are constants.
    hardness = 'hardness_strength' in case.settings
    own = 'the weights of the negatives are constants' if hardness else ''
    return Subject(
        str(case),
        case.build,
        call,
        own_gradient=row.own_gradient or own,
        promises=PROMISES,
        not_promised=excused,
    )


@dataclass(frozen=True)
class Case:
    """A loss with settings, and one kind of batch."""

    name: str
    settings: dict
    kind: str

    def __str__(self) -> str:
        words = [f'{k}={_word(v)}' for k, v in self.settings.items()]
        return '-'.join([self.name, *words, self.kind])

    def build(self) -> nn.Module:
        """The loss."""
        return build(self.name, self.settings)

    @cached_property
    def details(self) -> nn.Module:
        """A loss that nothing is done to: it decides what is in a batch."""
        with torch.random.fork_rng(devices=[]):
            return self.build()

    def batch(self, size: int = 12, seed: int = 0) -> Batch:
        """A batch of it."""
        return make(self.kind, self.details, size, seed)

    def rows(self) -> tuple:
        """Scores, labels, indices, and values of boxes or None; of a batch of rows."""
        batch = self.batch()
        scores, *boxes = batch.leaves
        *more, labels, idx = batch.fixed
        return scores, labels, idx, (*boxes, *more, None)[0]


def _word(value) -> str:
    if isinstance(value, dict):
        return str(value.get('type', '')).removeprefix('mmrank.')
    if isinstance(value, list):
        return '+'.join(map(_word, value))
    # The folder of a file differs from process to process.
    return Path(value).name if isinstance(value, str) else str(value)


@cache
def cases(*names: str) -> tuple[Case, ...]:
    """Each loss with each of its settings and kinds of batches.

    Leaves out a loss that cannot be built or called: it is a test of its own that there is none.

    Args:
        *names: Registered names. None: all losses.
    """
    found = []
    for name in names or loss_names():
        for settings in row_of(name).settings:
            try:
                accepted = kinds(build(name, settings))
            except (LookupError, ImportError):
                continue
            found += [Case(name, settings, kind) for kind in accepted]
    return tuple(found)


class _Deferred(Case):
    """LDAM once its classes are weighted."""

    def build(self):
        loss = super().build()
        loss.start_reweighting()
        return loss


LDAM = dict(class_counts=[300, 20, 100], num_samples=500, reweight_beta=0.99)
DEFERRED = _Deferred('LDAMLoss', dict(LDAM, num_classes=CLASSES, scale=2.0), 'rows')


def weighted_cases() -> list[Case]:
    """Each loss of scores, views or pairs with a weight for each entry."""
    found = [x for x in cases() if x.kind != 'queries' and row_of(x.name).takes_weights]
    return [replace(x, kind=f'weighted_{x.kind}') for x in [*found, DEFERRED]]


def made_up(*shape, seed=0):
    """Normal numbers in float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rows_with_background(n, classes, seed=0, dtype=torch.float64):
    """(n, C) scores, and the class of each row, which is C for two thirds of them: background."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, classes, generator=g, dtype=torch.float64)
    target = torch.randint(0, 3 * classes, (n,), generator=g)
    return scores.to(dtype), target.clamp(max=classes)


def one_vs_rest(scores, target):
    """(n, C) bool: whether a row is of a class."""
    return target[:, None] == torch.arange(scores.size(1))


def two_views(n=6, seed=0, dim=4):
    """Two (n, dim) float64 tensors."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, dim, generator=g, dtype=torch.float64) for _ in range(2)]


def with_gradient(function, leaf, *args, **kwargs):
    """Value of a function of a tensor, and the gradient of its sum."""
    leaf = leaf.detach().clone().requires_grad_()
    value = function(leaf, *args, **kwargs)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def assert_same_gradients(found, expected, leaves, **tolerance):
    """Compare a value, or several with a weight each, and the gradients."""
    torch.testing.assert_close(found, expected, **tolerance)
    slopes = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    gradients = [
        torch.autograd.grad((x * slopes).sum(), leaves, retain_graph=True)
        for x in (found, expected)
    ]
    torch.testing.assert_close(*gradients, **tolerance)


def share(sizes, rank):
    """The entries of a rank among those of all ranks."""
    begin = sum(sizes[:rank])
    return slice(begin, begin + sizes[rank])


def temperature(size: int, **settings) -> SampleTemperature:
    """A ``SampleTemperature``; the settings of its step stand beside its own."""
    steps = {field.name for field in fields(TemperatureStep)}
    step = TemperatureStep(**{k: v for k, v in settings.items() if k in steps})
    own = {k: v for k, v in settings.items() if k not in steps}
    return SampleTemperature(size, step=step, **own)
