"""What was built, in the model index and in the table of the docs."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import yaml

from mmrank.apis.publishing import SHORT_HASH
from mmrank.apis.released_model import read_model_index
from mmrank.errors import UserError
from mmrank.files import write_atomically
from mmrank.visualization.tables import markdown_table

from .assets import Asset
from .build import Record, read_record

PAGE = 'docs/pages/models.md'
_TABLE = re.compile(r'(<!-- models -->\n).*?(<!-- end of models -->)', re.S)


class _Indented(yaml.SafeDumper):
    """Lists inside of a mapping are indented, as the metafiles have them."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)


def register(assets: Sequence[Asset], out: Path, root: Path, url: str = '') -> list[Path]:
    """Write the records of a folder into the model index and the docs.

    Args:
        assets: The models of the release; those without a record stay as
            they are in the index.
        out: Folder of the release.
        root: The checkout.
        url: Address of the folder where users find the files. Empty: the
            index has the names alone, which ``mim download --dest`` finds in
            a folder that holds them.

    Returns:
        The files that were written.

    Raises:
        UserError: If a model has no entry in a metafile of its config.
    """
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
    entry['Results'] = [
        {
            'Task': asset.task,
            'Dataset': asset.dataset,
            'Metrics': {
                name: round(asset.scale * record.metrics[key], 2)
                for key, name in asset.metrics.items()
            },
        }
    ]
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
        rows.append(
            (
                f'`{entry["Name"]}`',
                f'`{PurePosixPath(entry["Config"]).parent}/`',
                result['Dataset'],
                metrics,
                f'{meta["Weights Size (MB)"]:.2f} MB',
                f'`{meta["Weights SHA-256"][:SHORT_HASH]}`',
                f'`{settings}`' if settings else '',
            )
        )
    head = ('name', 'config in', 'data', 'test split', 'size', 'hash')
    head = (*head, 'changed settings')
    return '\n'.join(markdown_table(head, rows, align='llllrll'))
