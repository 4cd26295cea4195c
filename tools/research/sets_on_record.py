"""Write what compare_losses.py --look-up knows: counts of our sets, and the losses that won there.

    python tools/research/sets_on_record.py              # the losses, from the records
    python tools/research/sets_on_record.py --data data  # the counts, too, from annotation files

The counts need the data sets, so they stay as they are without --data.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser
from lib.common.records import read_final_rows, values_of
from lib.own_data.look_up import FILE, Counts, count
from lib.seeds.statistics import compare_paired
from mmrank.errors import show_user_errors
from mmrank.files import write_atomically

RECORDS = Path(__file__).with_name('records')
#: What a record measured. {} stands for the name of the set.
CLAIMS = {
    'dense_claim_{}': 'a dense head on ImageNet features',
    'fine_tuning_claim_{}': 'a dense head on COCO features',
    'real_heads_atss_{}': "mmdet's ATSS, whole network",
    'real_heads_faster_rcnn_{}': "mmdet's Faster R-CNN, whole network",
    'dense_{}': 'a dense head on ImageNet features, settings chosen on these seeds',
}
#: Title, annotation file of the training, and the records by :data:`CLAIMS`.
SETS = {
    'bccd': ('blood cells', 'bccd/annotations/train.json'),
    'deeppcb': ('circuit boards', 'deeppcb/annotations/small.json'),
    'cards': ('playing cards', 'cards/annotations/train.json'),
    'coco128': ('COCO128', 'coco128/annotations/instances_train2017.json'),
}
#: What a detector of mmdet has as it is, by the method's name.
STOCK = ('focal', 'atss_focal', 'faster_rcnn_ce')
METRICS = ('mAP', 'coco/bbox_mAP')


def winner(path: Path, what: str) -> dict | None:
    """The best method of a record, compared with the next one and with the stock one.

    None for a record of one seed, which tells nothing.
    """
    rows = read_final_rows(path)
    metric = next(name for name in METRICS if name in rows[0])
    step = max(int(row['step']) for row in rows)
    values = values_of([row for row in rows if int(row['step']) == step], metric, 100)
    most = max(map(len, values.values()))
    if most < 2:
        return None
    values = {name: own for name, own in values.items() if len(own) == most}
    order = sorted(values, key=lambda name: -np.mean([*values[name].values()]))
    best = order[0]
    found = dict(what=what, record=path.stem, methods=len(order), seeds=most, best=shown(best))
    found['mean'] = round(float(np.mean([*values[best].values()])), 2)
    found['next'] = compared(values, best, order[1])
    stock = [name for name in order if name.split(',')[0] in STOCK]
    if stock and stock[0] not in order[:2]:
        found['stock'] = compared(values, best, stock[0])
    return found


def compared(values: Mapping, best: str, other: str) -> dict:
    """The paired difference of two methods."""
    found = compare_paired(values[best], values[other])
    interval = [round(found[key], 2) for key in ('ci_low', 'ci_high')]
    return dict(name=shown(other), difference=round(found['difference'], 2), interval=interval)


def shown(method: str) -> str:
    """A name without its detector."""
    return method.removeprefix('atss_').removeprefix('faster_rcnn_').replace('_', ' ')


def sets_on_record(data: Path | None) -> dict[str, dict]:
    """The content of the file; counts of before without ``data``."""
    before = json.loads(FILE.read_text(encoding='utf-8')) if FILE.is_file() else {}
    made = {}
    for name, (title, annotations) in SETS.items():
        counts = count(data / annotations) if data else Counts(**before[name]['counts'])
        found = []
        for claim, what in CLAIMS.items():
            path = RECORDS / f'{claim.format(name)}.csv'
            # What a claim has measured needs no choice.
            if path.is_file() and (claim != 'dense_{}' or not found):
                found.append(winner(path, what))
        found = [x for x in found if x is not None]
        made[name] = dict(title=title, counts=asdict(counts), found=found)
    return made


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('--data', type=Path, help='folder of the data sets')
    args = parser.parse_args()
    text = json.dumps(sets_on_record(args.data), indent=1) + '\n'
    write_atomically(text.encode(), FILE)
    print(f'wrote {FILE}')


if __name__ == '__main__':
    main()
