"""How much code whoever reads a loss has to read: a build and one step on a CPU."""

from itertools import pairwise

import pytest
import torch
from walks import ROOT, entered

from mmrank.losses import APLoss, EmbeddingLoss, SmoothAPLoss, SOPRCLoss, StableAPLoss

#: Questions whether the host may look at what a device or a compiler might hold.
QUESTIONS = {'can_sync', 'inside_transform', 'is_compiling'}


def scores_and_labels():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(4000, 80, generator=g, requires_grad=True)
    labels = torch.randint(0, 8000, (4000,), generator=g).clamp(max=80)
    return scores, labels


def embeddings_and_classes():
    g = torch.Generator().manual_seed(0)
    embeddings = torch.randn(112, 64, generator=g, requires_grad=True)
    return embeddings, torch.arange(112) % 28


#: Name: the loss, its batch, and at most so many files, lines of whole files, changes of file in
#: the step, and questions. Lower them where a way gets shorter.
WALKS = {
    'stable AP': (lambda: StableAPLoss(80), scores_and_labels, 10, 3110, 73, 5),
    'SmoothAP': (lambda: SmoothAPLoss(num_classes=80), scores_and_labels, 7, 2000, 46, 7),
    'AP-Loss': (lambda: APLoss(num_classes=80), scores_and_labels, 11, 3040, 65, 4),
    'SOPRC': (lambda: SOPRCLoss(80), scores_and_labels, 11, 3140, 72, 6),
    'embeddings': (
        lambda: EmbeddingLoss(StableAPLoss()), embeddings_and_classes, 12, 3740, 73, 5
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', WALKS)
def test_a_step_is_a_short_walk(name):
    build, batch, *most = WALKS[name]
    data = batch()
    build()(*data).backward()  # what is imported late
    losses = []
    calls = entered(lambda: losses.append(build()))
    step = entered(lambda: losses[0](*data).backward())
    files = {path for path, _ in calls + step}
    lines = sum(len((ROOT / path).read_text('utf-8').splitlines()) for path in files)
    changes = 1 + sum(one != other for (one, _), (other, _) in pairwise(step))
    questions = sum(function in QUESTIONS for _, function in step)
    reached = (len(files), lines, changes, questions)
    assert all(a <= b for a, b in zip(reached, most)), reached
