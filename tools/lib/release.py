"""Models of a release: their data, training, published weights and rows in the model index."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

import mmengine
import torch
import yaml
from rich.console import Console

import mmrank
from lib.common.tables import markdown_table
from lib.publishing import SHORT_HASH, describe_centre, publish_model
from lib.seeds.plan import Method, Run, SeedPlan, load_config
from lib.seeds.report import work_off
from lib.seeds.runs import RunQueue
from mmrank.apis.models import read_model_index
from mmrank.engine.resume.checkpoint import find_last_whole_checkpoint
from mmrank.errors import UserError
from mmrank.files import write_atomically


@dataclass(frozen=True)
class DataSource:
    """Data of a model: ``folder/needed`` of the data root, and ``data/target`` of its config."""

    folder: str
    needed: str
    target: str
    converter: tuple[str, ...] = ()

    def is_there(self, data_root: Path) -> bool:
        """Whether the data root has it."""
        return (data_root / self.folder / self.needed).exists()

    def prepare(self, data_root: Path, build: Path, converters: Path) -> None:
        """Put it where the configs look for it, once."""
        target = build / 'data' / self.target
        if target.exists():
            return
        source = data_root / self.folder
        if not self.is_there(data_root):
            raise UserError(
                f'{source / self.needed} does not exist.\n  Fix: pass the folder with the data '
                'sets, --data-root DIR, or name the models to build; --list shows what is there'
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if not self.converter:
            target.unlink(missing_ok=True)  # a link that leads nowhere
            target.symlink_to(source.resolve(), target_is_directory=True)
            return
        tool, *options = self.converter
        command = [sys.executable, converters / tool, source / self.needed, target, *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise UserError(
                f'{tool} cannot convert {source / self.needed}: {done.stderr.strip()[-500:]}'
            )


@dataclass(frozen=True)
class Asset:
    """One model of a release, with its names in tables and in the model index."""

    name: str
    config: str
    data: DataSource
    dataset: str
    task: str
    metrics: Mapping[str, str]
    scale: float = 1.0
    cfg_options: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


ASSETS = (
    Asset(
        name='retinanet_r18_fpn_stable-ap_bccd',
        config='configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py',
        data=DataSource('bccd', 'annotations/train.json', 'bccd'),
        dataset='BCCD',
        task='Object Detection',
        metrics={
            'coco/bbox_mAP': 'box AP',
            'coco/bbox_mAP_50': 'box AP50',
            'coco/bbox_mAP_75': 'box AP75',
        },
        scale=100,
    ),
    Asset(
        name='conv4_smooth-ap_omniglot',
        config='configs/smooth_ap/conv4_smooth-ap_omniglot.py',
        data=DataSource(
            'omniglot', 'images_background_small1.zip', 'omniglot', ('omniglot.py', '--size', '28')
        ),
        dataset='Omniglot, unseen alphabets',
        task='Image Retrieval',
        metrics={'retrieval/mAP': 'mAP', 'retrieval/recall@1': 'Recall@1'},
        # As tuned by configs/soprc/omniglot_losses.yaml.
        cfg_options={'optim_wrapper.optimizer.lr': '0.01', 'model.head.loss.tau': '0.03'},
    ),
    Asset(
        name='smallconv_stable-ap_cifar10-binary-lt-16',
        config='configs/long_tail/smallconv_stable-ap_cifar10-binary-lt-16.py',
        data=DataSource('cifar10', 'cifar10_jpg.zip', 'cifar10_16', ('cifar10.py', '--size', '16')),
        dataset='CIFAR-10-LT, birds against the rest',
        task='Image Classification',
        metrics={'ranking/AP': 'AP', 'ranking/AUROC': 'AUROC'},
        # Four times the passes of the comparison of losses.
        cfg_options={
            **{'optim_wrapper.optimizer.lr': '0.3', 'train_cfg.max_iters': '800'},
            **{'train_cfg.val_interval': '801', 'param_scheduler.0.T_max': '800'},
            **{'param_scheduler.0.end': '800', 'default_hooks.checkpoint.interval': '800'},
        },
    ),
    Asset(
        name='two-tower64_unbiased-square_ml-1m',
        config='configs/in_batch/two-tower64_unbiased-square_ml-1m.py',
        data=DataSource('ml1m', 'train.csv.gz', 'ml1m'),
        dataset='MovieLens-1M, any rating',
        task='Recommendation',
        metrics={'top_k/precision@5': 'Precision@5', 'top_k/recall@25': 'Recall@25'},
    ),
)


def chosen_assets(names: list[str]) -> list[Asset]:
    """The assets of these names, all without a name."""
    known = [asset.name for asset in ASSETS]
    for name in names:
        if name not in known:
            raise UserError(
                f'{name!r} is no model of the release.\n  Fix: take one of ' + ', '.join(known)
            )
    return [asset for asset in ASSETS if not names or asset.name in names]


#: Parts of the package that decide what a training gives.
_DECISIVE = ('functional', 'state', 'losses', 'datasets', 'models', 'engine', 'evaluation')
#: Metrics of a published file may differ by what a tie of scores decides.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Record:
    """The description beside a published file, ``<name>.json``, with its metrics on test data."""

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
    """Hash of all that decides what the asset is."""
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
    """State of an asset: absent, outdated, damaged or built."""
    record = read_record(asset.name, out)
    if record is None or not (out / record.file).is_file():
        return 'absent'
    if record.digest != digest_of(asset, root):
        return 'outdated'
    data = (out / record.file).read_bytes()
    if hashlib.sha256(data).hexdigest() != record.sha256:
        return 'damaged'
    return 'built'


def build(asset: Asset, out: Path, root: Path, console: Console) -> Record:
    """Train in the current folder, as paths of this machine must not get into weights; publish."""
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
    queue = RunQueue(plan)
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
        before = outcome.metrics[key]
        if abs(metrics[key] - before) > _TOLERANCE * max(1, abs(before)):
            raise UserError(
                f'{asset.name}: {published.path} has {key} = {metrics[key]}, '
                f'the checkpoint {checkpoint} has {before}.\n'
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
    if (before := read_record(asset.name, out)) and before.file != record.file:
        (out / Path(before.file).name).unlink(missing_ok=True)
    text = json.dumps(asdict(record), indent=1) + '\n'
    write_atomically(text.encode(), out / f'{asset.name}.json')
    return record


def _measure(run: Run, weights: Path, root: Path) -> dict[str, float]:
    """Metrics of a published file, by ``tools/test.py``."""
    result = run.folder / 'published.json'
    options = [f'{key}={value}' for key, value in run.options.items()]
    command = [sys.executable, str(root / 'tools' / 'test.py'), run.config, str(weights)]
    command += ['--work-dir', str(run.folder / 'published')]
    command += ['--out', str(result), '--out-item', 'metrics']
    if options:
        command += ['--cfg-options', *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f'{weights} cannot be tested: {done.stderr.strip()[-1000:]}')
    return json.loads(result.read_text())


PAGE = 'docs/pages/models.md'
_TABLE = re.compile(r'(<!-- models -->\n).*?(<!-- end of models -->)', re.S)


class _Indented(yaml.SafeDumper):
    """Lists inside of a mapping are indented, as the metafiles have them."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)


def register(assets: Sequence[Asset], out: Path, root: Path, url: str = '') -> list[Path]:
    """Write the records of a folder into the model index and the docs."""
    written = []
    for asset in assets:
        record = read_record(asset.name, out)
        if record is None:
            continue
        path = (root / asset.config).parent / 'metafile.yml'
        text = path.read_text('utf-8')
        text = _with_entry(path, text, asset, record, url)
        write_atomically(text.encode(), path)
        written.append(path)
    page = root / PAGE
    text = page.read_text('utf-8')
    table = models_table(read_model_index(root).values())
    if not _TABLE.search(text):
        raise UserError(
            f'{page} has no place for the table.\n  Fix: add the lines '
            '<!-- models --> and <!-- end of models -->'
        )
    text = _TABLE.sub(lambda m: f'{m[1]}\n{table}\n\n{m[2]}', text)
    write_atomically(text.encode(), page)
    return [*dict.fromkeys(written), page]


def _with_entry(path: Path, text: str, asset: Asset, record: Record, url: str) -> str:
    """The metafile with what was built; other entries keep their lines."""
    block = re.compile(rf'^  - Name: {re.escape(asset.name)}\n(?:    .*\n?|\n)*', re.M)
    match = block.search(text)
    if match is None:
        raise UserError(
            f'{path} has no model {asset.name!r}.\n  Fix: add an entry with '
            'Name, In Collection, Config and Metadata'
        )
    (entry,) = yaml.safe_load(match[0])
    entry['Metadata'] |= {
        'Weights Size (MB)': round(record.size / 1e6, 2),
        'Weights SHA-256': record.sha256,
        'Seed': asset.seed,
    }
    if asset.cfg_options:
        entry['Metadata']['Settings'] = ' '.join(
            f'{key}={value}' for key, value in asset.cfg_options.items()
        )
    metrics = {
        name: round(asset.scale * record.metrics[key], 2) for key, name in asset.metrics.items()
    }
    entry['Results'] = [{'Task': asset.task, 'Dataset': asset.dataset, 'Metrics': metrics}]
    entry['Weights'] = f'{url.rstrip("/")}/{record.file}' if url else record.file
    dumped = yaml.dump(
        {'Models': [entry]}, Dumper=_Indented, sort_keys=False, allow_unicode=True, width=1000
    )
    block_text = dumped.partition('\n')[2]
    return text[: match.start()] + block_text + text[match.end() :]


def models_table(entries: Iterable[dict]) -> str:
    """Markdown table of the entries that have weights."""
    rows = []
    for entry in entries:
        if not entry.get('Weights'):
            continue
        result, meta = entry['Results'][0], entry['Metadata']
        metrics = ', '.join(f'{name} {value:.2f}' for name, value in result['Metrics'].items())
        settings = meta.get('Settings', '')
        name, folder = f'`{entry["Name"]}`', f'`{PurePosixPath(entry["Config"]).parent}/`'
        size = f'{meta["Weights Size (MB)"]:.2f} MB'
        digest = f'`{meta["Weights SHA-256"][:SHORT_HASH]}`'
        settings = f'`{settings}`' if settings else ''
        rows.append((name, folder, result['Dataset'], metrics, size, digest, settings))
    head = ('name', 'config in', 'data', 'test split', 'size', 'hash')
    head = (*head, 'changed settings')
    return '\n'.join(markdown_table(head, rows, align='llllrll'))
