"""Which losses hooks and heads find by which protocol."""

import ast
import inspect
import pydoc
import sys
from pathlib import Path

import pytest

import mmrank
from mmrank import losses
from mmrank.losses import protocols
from mmrank.settings import settings_of

NAMES = [
    name
    for name, entry in vars(protocols).items()
    if getattr(entry, '_is_protocol', False) and name != 'Protocol'
]
#: Losses, the protocols that they follow beyond those of heads, and what their flags say.
SOAP = losses.SOAPLoss(40, 3)
COUNTS = losses.SOPRCLoss(3, 'per_class', prior='counts')
SAMPLES = dict(keeps_samples=True, num_samples=40)
CASES = [
    (losses.StableAPLoss(), '', {}),
    (COUNTS, 'TakesClassCounts', dict(wants_class_counts=True)),
    (losses.SOPRCLoss(), 'TakesClassCounts', dict(wants_class_counts=False)),
    (SOAP, 'KeepsSampleState', SAMPLES),
    (losses.SumLoss([SOAP, losses.AUCLoss()]), 'KeepsSampleState TakesClassCounts', SAMPLES),
    (losses.RankSortLoss(), '', dict(box_input='quality')),
    (losses.ISogCLRLoss(40), 'HasDiagnostics KeepsSampleState', SAMPLES),
    (losses.InfoNCELoss(), 'HasDiagnostics TrainsEmbeddings', dict(keeps_samples=False)),
    (losses.LDAMLoss(num_classes=3), 'Reweights TakesClassCounts', dict(wants_class_counts=True)),
    (losses.InBatchLoss(), 'TakesPairCounts', dict(wants_pair_counts=True)),
]
LOSSES = [x for x in losses.__all__ if x.endswith('Loss')]
RANKING = {'HasDiagnostics', 'HasLogitCentre', 'TakesBoxValues', 'TrainsEmbeddings'}


@pytest.mark.parametrize(('loss', 'expected', 'flags'), CASES, ids=lambda x: type(x).__name__)
def test_losses_follow_protocols(loss, expected, flags):
    expected = {*expected.split()}
    if isinstance(loss, losses.HeadLoss):
        expected |= RANKING
    found = {name for name in NAMES if isinstance(loss, getattr(protocols, name))}
    assert found == expected
    for name, value in flags.items():
        assert getattr(loss, name) == value


def test_protocols_are_exported_and_need_the_standard_library_alone():
    assert {*NAMES} <= {*losses.__all__}
    assert 'StatelessRankingLoss' in losses.__all__
    tree = ast.parse(Path(protocols.__file__).read_text('utf-8'))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            head = node.module.partition('.')[0]
            assert head in sys.stdlib_module_names
        assert not isinstance(node, ast.Import)


@pytest.mark.parametrize('name', LOSSES)
def test_docstrings_describe_every_option(name):
    """In that of the class or of a base that it passes the option to."""
    cls = getattr(losses, name)
    docs = [base.__doc__ or '' for base in cls.__mro__]
    missing = [x for x in settings_of(cls) if not any(f'    {x}: ' in doc for doc in docs)]
    assert not missing


@pytest.mark.parametrize('name', LOSSES)
def test_signatures_are_whole_and_typed(name):
    """An editor sees no bare ``**kwargs``: what a base takes has its name and its type there."""
    cls = getattr(losses, name)
    parameters = inspect.signature(cls).parameters
    for p in parameters.values():
        assert p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        assert p.annotation is not p.empty, p.name
    assert getattr(mmrank, name) is cls
    if issubclass(cls, losses.HeadLoss) and name != 'SumLoss':  # its parts have a scope
        assert {'loss_weight', 'scope'} <= {*parameters}
    # Two refuse the None that stands for no default.
    complete = all(p.default is not p.empty for p in parameters.values())
    if complete and name not in ('InBatchSoftmaxLoss', 'SumLoss'):
        # Each of them is one that the class takes.
        cls(**{name: p.default for name, p in parameters.items()})


@pytest.mark.parametrize('name', LOSSES)
def test_help_begins_with_two_screens(name):
    """What ``help()`` shows before torch's own methods: 100 lines of 100 columns."""
    shown = pydoc.plaintext.document(getattr(losses, name))
    own, found, _ = shown.partition(' |  Method resolution order')
    assert found
    assert sum(len(line) // 100 + 1 for line in own.splitlines()) <= 100
