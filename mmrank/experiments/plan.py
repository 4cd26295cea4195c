"""What a comparison trains: methods x seeds, a folder for each training."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mmrank.experiments.records import FINAL
from mmrank.runners.identity import identity


@dataclass(frozen=True)
class Method:
    """One row of the table: a config, and settings that override it."""

    name: str
    config: str
    cfg_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One training with one evaluation after it."""

    method: str
    config: str
    seed: int
    options: Mapping[str, str]
    folder: Path
    split: str = 'test'  # Data that it is evaluated on: ``'val'`` or ``'test'``
    stage: str = FINAL  # As a record has it
    choice: Mapping[str, str] = field(default_factory=dict)  # Options that are tuned
    label: str = ''  # Short name for logs

    @property
    def result_file(self) -> Path:
        """The file whose presence marks the run as finished."""
        return self.folder / 'result.json'

    @property
    def log(self) -> Path:
        """What its command prints."""
        return self.folder / 'output.log'


@dataclass(frozen=True)
class Comparison:
    """Methods that are trained on the same seeds and compared by the same metrics."""

    out_dir: Path  # Folder of all runs and of the report
    methods: tuple[Method, ...]
    seeds: tuple[int, ...]
    # Keys of the metrics in the table, as the evaluator names them (``'coco/bbox_mAP'``)
    metrics: tuple[str, ...]
    baseline: str = ''  # Name of the method that the others are compared with
    scale: float = 1.0  # Factor of the metrics in the report, 100 for percent
    unit: str = 'seed'  # What the figures are paired by

    def runs(self, split: str = 'test') -> list[Run]:
        """All runs, seed by seed, so that an early look at the table is paired."""
        runs = []
        for seed in self.seeds:
            for method in self.methods:
                digits = identity(method.config, method.cfg_options, split)
                folder = self.out_dir / method.name / f'seed_{seed}-{digits}'
                facts = method.name, method.config, seed, dict(method.cfg_options), folder, split
                runs.append(Run(*facts, label=f'{method.name} seed {seed}'))
        return runs
