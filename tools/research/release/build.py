"""Train a model of a release, publish its weights, measure what was published.

What was built is described by a record beside the file, ``<name>.json``. A record of the same
config, options and code is kept; a training that was interrupted continues.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import mmengine
import torch
from rich.console import Console

import mmrank
from mmrank.apis.publishing import SHORT_HASH, describe_centre, publish_model
from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint
from mmrank.errors import UserError
from mmrank.files import write_atomically
from research.seeds.console import work_off
from research.seeds.executors.local import LocalExecutor
from research.seeds.plan import Method, Run, SeedPlan, load_config
from research.seeds.runs import RunQueue, train_command

from .assets import Asset

#: Parts of the package that decide what a training gives.
_DECISIVE = ('functional', 'state', 'losses', 'datasets', 'models', 'engine', 'evaluation')
#: Metrics of a published file may differ by what a tie of scores decides.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Record:
    """What was built.

    Attributes:
        name: Name of the model.
        digest: Of config, options and code; see :func:`digest_of`.
        file: Name of the file.
        sha256: Its hash.
        size: Its bytes.
        metrics: What the published file has on test data, by key of the evaluator.
        seconds: Time that this took, without that of an earlier start.
        versions: Versions of the packages.
    """

    name: str
    digest: str
    file: str
    sha256: str
    size: int
    metrics: Mapping[str, float]
    seconds: float
    versions: Mapping[str, str]


def code_digest() -> str:
    """Hash of the sources that decide what a training gives."""
    root = Path(mmrank.__file__).parent
    digest = hashlib.sha256()
    for part in _DECISIVE:
        for path in sorted((root / part).rglob('*.py')):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def digest_of(asset: Asset, root: Path) -> str:
    """Hash of all that decides what the asset is.

    Args:
        asset: The asset.
        root: The checkout.

    Returns:
        Hexadecimal digits.
    """
    config = load_config(str(root / asset.config))
    parts = [config, dict(asset.cfg_options), asset.seed, code_digest()]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read_record(name: str, out: Path) -> Record | None:
    """The record of a model, None where there is none that can be read."""
    try:
        return Record(**json.loads((out / f'{name}.json').read_text()))
    except (OSError, ValueError, TypeError):
        return None


def state_of(asset: Asset, out: Path, root: Path) -> str:
    """What there is of an asset.

    Args:
        asset: The asset.
        out: Folder of the release.
        root: The checkout.

    Returns:
        ``built``, ``absent``, ``outdated`` (of another config, options or code) or ``damaged``.
    """
    record = read_record(asset.name, out)
    if record is None or not (out / record.file).is_file():
        return 'absent'
    if record.digest != digest_of(asset, root):
        return 'outdated'
    data = (out / record.file).read_bytes()
    if hashlib.sha256(data).hexdigest() != record.sha256:
        return 'damaged'
    return 'built'


def build(asset: Asset, out: Path, root: Path, console: Console, forked: bool = False) -> Record:
    """Train, publish and measure an asset.

    The trainings run in the current folder, with the data in ``data/``, so that no path of this
    machine gets into the weights.

    Args:
        asset: The asset.
        out: Folder of the release.
        root: The checkout.
        console: Where to show progress.
        forked: See :class:`LocalExecutor`.

    Returns:
        The record, which is written, too.

    Raises:
        UserError: If the training fails, or the published file has other metrics than the
            checkpoint.
    """
    start = time.monotonic()
    digest = digest_of(asset, root)  # the code may change meanwhile
    config = str(root / asset.config)
    plan = SeedPlan(
        out_dir=Path('work_dirs') / code_digest()[:8],
        methods=(Method(asset.name, config, asset.cfg_options),),
        seeds=(asset.seed,),
        metrics=tuple(asset.metrics),
        baseline=asset.name,
    )
    script = root / 'tools' / 'benchmarks' / 'train_and_test.py'
    executor = LocalExecutor(forked=forked)
    queue = RunQueue(plan, train_command(script), executor)
    runs = plan.final_runs()
    (outcome,) = work_off(console, queue, runs, asset.name)
    if outcome.error:
        raise UserError(
            f'{asset.name}: the training failed.\n{outcome.error}\n  Fix: see '
            'the log; the same command goes on from the last checkpoint'
        )
    (run,) = runs
    checkpoint = find_last_whole_checkpoint(run.folder)
    published = publish_model(
        checkpoint, run.folder / 'published' / f'{asset.name}.pth', config=config
    )
    for centre in published.centres:
        console.print(describe_centre(centre), highlight=False)
    metrics = _measure(run, published.path, root)
    for key in asset.metrics:
        if abs(metrics[key] - outcome.metrics[key]) > _TOLERANCE * max(
            1, abs(outcome.metrics[key])
        ):
            raise UserError(
                f'{asset.name}: {published.path} has {key} = {metrics[key]}, '
                f'the checkpoint {checkpoint} has {outcome.metrics[key]}.\n'
                '  Fix: this is an error of mmrank, please report it'
            )
    record = Record(
        name=asset.name,
        digest=digest,
        file=published.path.name,
        sha256=published.sha256,
        size=published.path.stat().st_size,
        metrics={key: metrics[key] for key in asset.metrics},
        seconds=round(time.monotonic() - start, 1),
        versions=dict(
            mmrank=mmrank.__version__, torch=torch.__version__, mmengine=mmengine.__version__
        ),
    )
    os.replace(published.path, out / record.file)
    for other in out.glob(f'{asset.name}-{"?" * SHORT_HASH}.pth'):
        if other.name != record.file:
            other.unlink()
    text = json.dumps(asdict(record), indent=1) + '\n'
    write_atomically(text.encode(), out / f'{asset.name}.json')
    return record


def _measure(run: Run, weights: Path, root: Path) -> dict[str, float]:
    """Metrics of a published file, by ``tools/test.py``."""
    result = run.folder / 'published.json'
    options = [f'{key}={value}' for key, value in run.options.items()]
    command = [
        sys.executable,
        str(root / 'tools' / 'test.py'),
        run.config,
        str(weights),
        '--work-dir',
        str(run.folder / 'published'),
        '--out',
        str(result),
        '--out-item',
        'metrics',
    ]
    if options:
        command += ['--cfg-options', *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f'{weights} cannot be tested: {done.stderr.strip()[-1000:]}')
    return json.loads(result.read_text())
