"""Every registered loss of mmrank, and batches of what it accepts.

A new loss is in the list because it is registered. The arguments of its ``forward`` decide what it
is called with:

========== =============================== ==============================
kind       ``forward`` or method takes     one entry of the batch
========== =============================== ==============================
rows       ``cls_score, target``           a row of scores and its class
weighted   the same, and ``weight``        the same, and how often it counts
queries    ``embedding_loss(batch)``       an embedding and its class
views      ``view1, view2, sample_idx``    two embeddings of a sample
pairs      ``left, right, rows, cols``     a positive pair and its numbers
========== =============================== ==============================
"""

import inspect
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import nn

from mmrank.losses import EmbeddingBatch, EmbeddingLoss
from mmrank.losses.ranking.sodeep import RankSorter
from mmrank.losses.two_tower.in_batch import IN_BATCH_MODES
from mmrank.registry import MODELS
from mmrank.tensors import unit_rows
from mmrank.testing import Batch, Call, Subject
from mmrank.testing.calls import _call_in_order

CLASSES, SAMPLES, WIDTH = 3, 40, 8
HERE = 'tests/helpers/registered_losses.py'
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


#: Arguments that have no default, and other settings to test. A loss that is not here is built with
#: its defaults.
SETTINGS = {
    'ALRPLoss': [dict(balance_period=2), dict(mode='per_class')],
    'APLoss': [*BOTH_MODES, dict(quality=0.9)],
    'AsymmetricLoss': [
        dict(num_classes=CLASSES),
        dict(num_classes=CLASSES, gamma_neg=0.5, gamma_pos=1.0, clip=0.0),
    ],
    'AUCMLoss': [{}, dict(num_classes=CLASSES, mode='per_class', margin=0.5)],
    'AUCLoss': [*BOTH_MODES, dict(surrogate='one_sided_huber', tau=0.5, activation='sigmoid')],
    'BalancedSoftmaxLoss': [COUNTED],
    'BimodalISogCLRLoss': [PER_SAMPLE],
    'BlackBoxAPLoss': BOTH_MODES,
    'CLIPLoss': [dict(tau=0.3), dict(tau=0.3, learnable=False)],
    'ClassBalancedCELoss': [dict(COUNTED, use_sigmoid=True), COUNTED],
    'CyCLIPLoss': [dict(tau=0.3)],
    'DRLoss': BOTH_MODES,
    'FlatCLRLoss': [{}, dict(bimodal=True)],
    'HAPLoss': [dict(tau=0.3, alpha=2.0, mode='per_class')],
    'ISogCLRLoss': [PER_SAMPLE, dict(PER_SAMPLE, gradient_clip=0.1)],
    'InBatchLoss': [*(dict(mode=mode) for mode in IN_BATCH_MODES), dict(pointwise='logistic')],
    'InBatchSoftmaxLoss': [
        dict(frequency='counts', tau=0.5, loss_weight=2.0),
        dict(frequency='counts', refined=True),
        dict(frequency='none'),
    ],
    'IndividualCLIPLoss': [dict(PER_SAMPLE, tau=0.3)],
    'InfoNCELoss': [
        {},
        dict(bimodal=True, loss_weight=0.5, hardness_strength=9.0),
        dict(hardness_strength=2.0),
    ],
    # Of (n, C) levels it says that the columns are classes.
    'LambdaLoss': [dict(num_classes=CLASSES), dict(scheme='ndcg_loss2', mode='per_class', tau=0.5)],
    'ListNetLoss': [dict(num_classes=CLASSES), dict(mode='per_class')],
    'LDAMLoss': [dict(COUNTED, scale=2.0, use_sigmoid=True), dict(COUNTED, scale=2.0)],
    'ListwiseAPLoss': BOTH_MODES,
    'LogitAdjustedCELoss': [dict(COUNTED, use_sigmoid=True), dict(COUNTED, tau=1.5)],
    'NDCGLoss': [dict(tau=0.3, num_classes=CLASSES), dict(tau=0.3, mode='per_class')],
    'NUCLRLoss': [dict(PER_SAMPLE, tau=0.3, eta=0.02)],
    'PMLLoss': [dict(loss=dict(type='TripletMarginLoss')), dict(loss=dict(type='FastAPLoss'))],
    'PartialAUCLoss': [
        dict(max_fpr=0.4),
        dict(max_fpr=0.3, mode='per_class', activation='sigmoid', tau=0.5),
    ],
    'QualityFocalLoss': [{}, dict(use_iou=False, alpha=0.25)],
    'ROADMAPLoss': [dict(tau=0.3, lam=0.3)],
    'RankSortLoss': BOTH_MODES,
    'RecallAtKLoss': [dict(ks=(1, 3), tau=0.3, mode='per_class')],
    'SOAPLoss': [dict(PER_SAMPLE, num_classes=CLASSES)],
    'SOPRCLoss': [
        {},
        dict(num_classes=CLASSES, mode='per_class'),
        dict(num_classes=CLASSES, lam1=0.1, lam2=0.1),
        dict(lam1=0.1, lam2=0.5, semi_variance='batch'),
    ],
    'SoDeepLoss': [SORTER, dict(SORTER, mode='per_class')],
    'SigLIPLoss': [{}, dict(tau=0.5, loss_weight=0.5)],
    'SimCoLoss': [{}, dict(bimodal=False)],
    'SmoothAPLoss': [*BOTH_MODES, dict(quality=0.9, mode='per_class')],
    'SogCLRLoss': [
        PER_SAMPLE,
        dict(PER_SAMPLE, bimodal=True),
        dict(PER_SAMPLE, bimodal=True, tau=0.3, rho=0.5),
        dict(PER_SAMPLE, tau=0.3, rho=0.5),
    ],
    'StableAPLoss': [
        {},
        dict(rho=1.0),
        dict(rho='batch', activation='sigmoid', tau=0.3),
        dict(num_classes=CLASSES, mode='per_class', rho=1.0),
        dict(mean_mode=0.5, reduction='sum'),
        dict(quality=0.9),
        dict(tau='auto', num_classes=CLASSES, mode='per_class'),
        dict(quality=0.5, num_classes=CLASSES, mode='per_class'),
    ],
    'SupAPLoss': [dict(tau=0.3, mode='per_class')],
    'SumLoss': [
        dict(
            losses=[dict(type='mmrank.StableAPLoss'), dict(type='mmrank.AUCLoss')],
            weights=[1.0, 0.5],
        )
    ],
    'TempNetLoss': [dict(PER_SAMPLE, width=WIDTH, tau_min=0.1, tau_max=0.5, dropout=0.0)],
    'VarifocalLoss': [{}, dict(use_iou=False)],
}


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


def _of_rows(loss, scores, *rest):
    *boxes, target, idx = rest
    options = {}
    if key := box_argument(loss):
        has_class = target.long() < scores.size(1)
        # Of meta tensors nobody knows how many, and no loss asks.
        options[key] = boxes[0] if boxes[0].is_meta else boxes[0][has_class]
    if getattr(loss, 'keeps_samples', False):
        options['sample_idx'] = idx
    return loss(scores, target, **options)


def _of_queries(loss, embeddings, labels):
    # As the heads do.
    return loss.embedding_loss(EmbeddingBatch.of_one_batch(unit_rows(embeddings), labels))


class Weighted(nn.Module):
    """A loss with a weight for each score."""

    def __init__(self, loss, weight):
        super().__init__()
        self.loss, self.weight = loss, weight
        self.box_input = getattr(loss, 'box_input', None)
        self.keeps_samples = getattr(loss, 'keeps_samples', False)

    def forward(self, scores, target, **more):
        return self.loss(scores, target, self.weight, **more)


def _of_weighted_rows(loss, scores, *rest):
    *rest, weight = rest
    return _of_rows(Weighted(loss, weight), scores, *rest)


def weighted_call(case, loss, batch, weight):
    """The loss of a batch by the public call of its kind, with a weight for each entry or None."""
    if case.kind == 'rows':
        return batch.of(Weighted(loss, weight))
    if case.kind == 'queries':
        return EmbeddingLoss(loss)(*batch.leaves, *batch.fixed, weight=weight)
    return loss(*batch.leaves, *batch.fixed, weight=weight)


CALLS = {
    'rows': _of_rows,
    'weighted': _of_weighted_rows,
    'queries': _of_queries,
    'views': _call_in_order,
    'pairs': _call_in_order,
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
            f'add its arguments without default to SETTINGS in {HERE}.'
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

    labels = torch.randint(CLASSES, (size,), generator=g)
    idx = torch.randperm(SAMPLES, generator=g)[:size]
    if size > 4:
        idx[-1] = idx[0]  # a sample may come up twice
    if kind in ('rows', 'weighted'):
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
        if kind == 'weighted':
            fixed.append(2 * torch.rand(size, generator=g, dtype=torch.float64))
        return Batch(kind, tuple(leaves), tuple(fixed), CALLS[kind])
    if kind == 'queries':
        return Batch(kind, (normal(),), (labels,), CALLS[kind])
    leaves = normal(), normal()
    if kind == 'views':
        return Batch(kind, leaves, (idx,), CALLS[kind])
    order = torch.randperm(len(PAIRS[0]), generator=g)[:size]
    return Batch(kind, leaves, (PAIRS[0][order], PAIRS[1][order]), CALLS[kind])


#: Losses whose gradient is not the derivative of the value that they show,
#: and why.
OWN_GRADIENT = {
    'ALRPLoss': 'error-driven update',
    'APLoss': 'error-driven update',
    'BlackBoxAPLoss': 'difference to a perturbed ranking',
    'GradedAPLoss': 'error-driven update',
    'LambdaLoss': 'the weights of the pairs are constants',
    'IABCELoss': 'the target of a positive is a constant',
    'MALLoss': 'the weight of a negative is a constant',
    'RankSortLoss': 'error-driven update',
    'SOPRCLoss': 'the ranks among the positives are constants',
    'SimCoLoss': 'the ratio of the two temperatures is a constant',
    'StableAPLoss': 'the weights of the positives are constants',
    'SumLoss': 'it has StableAPLoss as a part',
    'TempNetLoss': 'a temperature is a constant of the embedding',
    'VarifocalLoss': 'the weight of a negative is a constant',
}
#: A cross-entropy is infinite where a score is.
POINTWISE = ('AsymmetricLoss', 'BalancedSoftmaxLoss', 'ClassBalancedCELoss', 'LDAMLoss')
POINTWISE += ('LogitAdjustedCELoss',)
POINTWISE += ('IABCELoss', 'MALLoss', 'QualityFocalLoss', 'VarifocalLoss')
#: Losses without one graph: the miners and distances of pytorch-metric-learning find pairs by
#: nonzero.
BREAKS = {'PMLLoss'}
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
        no_positives=None if case.kind in ('views', 'pairs', 'weighted') else alone,
        all_positives=None if case.kind in ('pairs', 'weighted') else _of_one_class,
    )
    excused = {}
    if case.name in POINTWISE or case.kind != 'rows':
        excused['infinities'] = 'only what ranks scores takes them'
    if case.settings.get('mode') == 'sogram':
        excused['permutation'] = 'a sample is two rows'
    if case.settings.get('learnable') is False:
        excused['built_on_meta'] = 'a temperature that is fixed is in no checkpoint'
    if case.name in BREAKS:
        excused.update(compile='it breaks the graph', meta='it looks at values')
    # The weights of negatives by their hardness are constants.
    hardness = 'hardness_strength' in case.settings
    own = 'the weights of the negatives are constants' if hardness else ''
    return Subject(
        str(case),
        case.build,
        call,
        own_gradient=OWN_GRADIENT.get(case.name, own),
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


def _word(value) -> str:
    if isinstance(value, dict):
        return str(value.get('type', '')).removeprefix('mmrank.')
    if isinstance(value, list):
        return '+'.join(map(_word, value))
    # The folder of a file differs from process to process.
    return Path(value).name if isinstance(value, str) else str(value)


def cases(*names: str) -> list[Case]:
    """Each loss with each of its settings and kinds of batches.

    Leaves out a loss that cannot be built or called: it is a test of its own that there is none.

    Args:
        *names: Registered names. None: all losses.
    """
    found = []
    for name in names or loss_names():
        for settings in SETTINGS.get(name, [{}]):
            try:
                accepted = kinds(build(name, settings))
            except (LookupError, ImportError):
                continue
            found += [Case(name, settings, kind) for kind in accepted]
    return found


class _Deferred(Case):
    """LDAM once its classes are weighted."""

    def build(self):
        loss = super().build()
        loss.start_reweighting()
        return loss


LDAM = dict(class_counts=[300, 20, 100], num_samples=500, reweight_beta=0.99)
DEFERRED = _Deferred('LDAMLoss', dict(LDAM, num_classes=CLASSES, scale=2.0), 'rows')
#: Losses of scores whose weights are 0 and 1.
NO_WEIGHTS = ('LambdaLoss', 'NDCGLoss', 'SoDeepLoss')


def weighted_cases() -> list[Case]:
    """Each loss of scores with a weight for each row."""
    of_rows = [x for x in cases() if x.kind == 'rows' and x.name not in NO_WEIGHTS]
    return [replace(x, kind='weighted') for x in [*of_rows, DEFERRED]]
