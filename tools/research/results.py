"""Write the tables, pictures and overviews of the pages from the records of their trainings.

    python tools/research/results.py            # rewrite all pages
    python tools/research/results.py --check    # say which pages differ from their records

``tools/research/records/NAME.csv`` has a row for each evaluation, as the ``runs.csv`` of
``tools/research/run_seeds.py``: ``method``, ``seed`` (or fold), ``step``, ``commit``,
``seconds``, and a column for each metric. A page shows its last step between two comments, each
method paired by seed with the first, or with ``baseline``::

    <!-- record: NAME mAP AP50 baseline=focal step=400 boxes=pictures/NAME.png -->
    <!-- end of record -->

``baseline=own`` pairs ``NAME, OPTION`` with ``NAME``. ``differences=2`` has a column of differences
for each of the first two metrics, with Holm's correction for each column.

``boxes`` and ``curves`` are pictures that are drawn of it, ``scale=1`` says that the metrics are in
percent already. With ``title=`` and ``ours=``, the method that mmrank recommends, it is a row of
``<!-- overview -->``, up to ``<!-- end of overview -->``, compared with ``peer``, the strongest
other method (by default the baseline). With ``task=`` it is one of the short
``<!-- overview: stock -->`` or ``<!-- overview: peer -->``, if it names the method of that name.

A folder of records, one for each data set, has two tables: the means by set, and what ``ours``
gains over the sets; ``forest`` is their picture. With ``groups=`` it has the gains alone, over the
sets of each group: ``"groups=one class: metal, potholes; others: cards, masks"``. The sets of
``FOLDER+FOLDER`` are those of the second one, with the methods of both::

    <!-- sets: many_sets mAP ours=graded_ap forest=pictures/many_sets.png -->
    <!-- end of sets -->

Settings are chosen on seeds below 100 and claimed on seeds from 100 on, or tuned on validation
images by the plan. A row of an overview whose seeds were used to choose is marked.
"""

import hashlib
import re
import sys
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors
from mmrank.experiments.records import read_curve_rows
from mmrank.files import write_atomically
from mmrank.pictures import names
from pages.blocks import COMMENT, PICTURES, Block, blocks_of
from pages.overview import overview
from pages.record_tables import draw_boxes, draw_curves, read_record, table_of
from pages.set_tables import draw_sets, table_of_groups, table_of_sets
from plans import loss_names

ROOT = Path(__file__).resolve().parents[2]
# Names and colours in pictures: where these change, the pictures do.
LOOKS = [Path(x.__file__) for x in (names, loss_names)]


def draw(block: Block, check: bool) -> list[str]:
    """Draw the pictures of a block that are of other rows; their names."""
    content = [block.words.encode(), *(x.read_bytes() for x in (*block.records, *LOOKS))]
    digest = hashlib.sha256(b''.join(content)).hexdigest()[:16]
    others = []
    for kind in block.options.keys() & {*PICTURES}:
        path = block.page.parent / block.options[kind]
        if path.is_file():
            with Image.open(path) as image:
                if image.info.get('record') == digest:
                    continue
        others.append(block.options[kind])
        if not check:
            if kind == 'forest':
                draw_sets(block, path)
            elif kind == 'boxes':
                what = read_record(block.record, block.metrics, **block.table_options)
                draw_boxes(what.values, block.metrics, path)
            else:
                rows = read_curve_rows(block.record)
                draw_curves(rows, block.metrics[0], block.scale, path)
            text = PngInfo()
            text.add_text('record', digest)
            with Image.open(path) as image:
                image.load()
            image.save(path, pnginfo=text, optimize=True)
    return others


def rewritten(page: Path, blocks: list[Block] = (), check: bool = True) -> str:
    """A page with its tables and overviews made again; its pictures, too, unless ``check``."""

    def make(match: re.Match) -> str:
        start, kind, words, end = match.groups()
        if kind == 'record':
            block = Block(words, page)
            count = block.options.get('differences', '1')
            table = table_of(block.record, block.metrics, count, **block.table_options)
        elif kind == 'sets':
            block = Block(words, page)
            has_groups = 'groups' in block.options
            table = table_of_groups(block) if has_groups else table_of_sets(block)
        else:
            table = f'{overview(blocks, words or "", page.parent)}\n'
        if kind != 'overview' and (others := draw(block, check)) and check:
            table = f'{", ".join(others)} of other rows'
        return f'{start}\n{table}\n{end}'

    return COMMENT.sub(make, page.read_text(encoding='utf-8'))


@show_user_errors()
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument(
        '--check', action='store_true', help='change nothing; exit 1 if one differs'
    )
    args = parser.parse_args()
    pages = [
        *sorted(ROOT.glob('docs/pages/**/*.md')),
        *sorted(ROOT.glob('configs/*/README.md')),
        ROOT / 'README.md',
    ]
    differ = []
    blocks = blocks_of(pages)
    for page in pages:
        new = rewritten(page, blocks, args.check)
        if new != page.read_text(encoding='utf-8'):
            differ.append(page.relative_to(ROOT).as_posix())
            if not args.check:
                write_atomically(new.encode(), page)
    if args.check and differ:
        sys.exit(
            f'{", ".join(differ)} differ from their records. Fix: python tools/research/results.py'
        )
    print(
        f'{len(pages)} pages: {len(differ) or "no"} tables {"differ" if args.check else "written"}'
    )


if __name__ == '__main__':
    main()
