"""Every table and figure of the four papers: paper_tables.yaml, and how long its trainings take.

GPU hours are an estimate: ``images x GMAC of a forward pass / GMAC a second``. The denominator is
the speed of a published training with its backward passes: ResNet-50 at 224 x 224, TF32, 938
images/s on one A100 of 80 GB (NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, README,
"Training performance", 21.03 container). Not in it: reading images, tests, and the loss, below 10 %
of a step (stable AP, table 3). The GPUs of the papers are slower, up to 2.8 times the estimate.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

#: States of a table, and how they are shown.
STATES = {
    'here': 'run here as published, to its end, by the command',
    'small': 'run here on small data, to its end, by the command',
    'ready': 'the command runs it on small data; not run to its end here yet',
    'data': 'runnable with the named data and GPU hours; not run here',
    'out': 'left out: it shows no result',
}
#: States in which the tool runs the commands.
RUNNABLE = ('here', 'small', 'ready')
#: States of which results are on record.
RUN = ('here', 'small')
#: The page of the results that the tool itself has made.
PAGE = 'docs/pages/results/papers.md'

#: Images a second of the published training.
PUBLISHED_RATE = 938.0
#: GMAC of one forward pass of ResNet-50 at 224 x 224.
RESNET50 = 4.09
GPU = 'A100 80 GB, TF32'
#: GMAC of one forward pass for an image, by network.
NETWORKS = {
    'ResNet-50, 224 px': RESNET50,
    # Layer 3 has the batch twice, layer 4 four times.
    'ResNet-50 with feature mixup, 224 px': 7.98,
    # A third more: a forward pass of the batch under the previous weights.
    'ResNet-50 with feature mixup and eq. 6, 224 px': 7.98 * 4 / 3,
    'ResNet-50 with eq. 6, 224 px': RESNET50 * 4 / 3,
    # Two views, and 512 or 2048 - 8192 - 8192 - 8192 after them.
    'two-view ResNet-18, 224 px': 2 * (1.81 + 0.138),
    'two-view ResNet-50, 224 px': 2 * (RESNET50 + 0.151),
    # 30 words: 42.5 M weights of the blocks for each.
    'ResNet-50, 256 px, and DistilBERT': 5.34 + 1.28,
    'RetinaNet, ResNet-50 FPN, 512 px': 52.0,
    'Faster R-CNN, ResNet-50 FPN, 512 px': 57.0,
    'ResNet-18 for CIFAR, 32 px': 0.557,
}


@dataclass(frozen=True)
class Training:
    """``count`` trainings of a network, each through so many million images."""

    images: float
    network: str
    count: int = 1

    @property
    def hours(self) -> float:
        """Hours of all of them on one GPU, an estimate."""
        gmac = self.count * self.images * 1e6 * NETWORKS[self.network]
        return gmac / (PUBLISHED_RATE * RESNET50) / 3600

    def __str__(self) -> str:
        return (
            f'{self.count} x {self.images:.3g} M images, {self.network}, '
            f'{NETWORKS[self.network]:.2f} GMAC: {self.hours:.2g} h'
        )


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper."""

    name: str  # ``paper/table2``, or ``paper/table2@data`` for a further way to make it
    title: str  # What it shows
    state: str  # One of :data:`STATES`
    # The commands that make it, one after the other, with ``python`` left out; with state ``data``
    # the first of the trainings that it takes. A word with ``*`` stands for the one file that it
    # matches then.
    commands: tuple[str, ...] = ()
    needs: str = ''  # Data that has to be there
    note: str = ''  # How it differs from the paper, or why it is not there
    results: str = ''  # File of this repository with what came out; for :data:`RUN`
    trainings: tuple[Training, ...] = ()  # At the published size, where it takes any

    @property
    def gpu_hours(self) -> float:
        """Hours at the published size on one GPU, an estimate; or 0."""
        return sum(x.hours for x in self.trainings)


def _read(row: dict) -> PaperTable:
    trainings = tuple(Training(**x) for x in row.pop('trainings', ()))
    return PaperTable(commands=tuple(row.pop('commands', ())), trainings=trainings, **row)


TABLES = list(map(_read, yaml.safe_load(Path(__file__).with_suffix('.yaml').read_text('utf-8'))))


def table_named(name: str) -> PaperTable:
    """The table of a name; KeyError where there is none."""
    return {table.name: table for table in TABLES}[name]
