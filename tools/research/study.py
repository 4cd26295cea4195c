"""Train the methods of a plan over seeds; a plan that was stopped goes on where it was.

    python tools/research/study.py tools/research/dense/dense_claim.yaml --out work_dirs/claim

``study`` of the plan names the file in ``tools/research/studies`` that trains, whose docstring says
what the plan has. ``PLAN_SET.csv`` in the folder gets the rows of each training, ``PLAN.csv`` where
the plan has no sets. ``results.py`` makes the tables of the pages from such records.
"""

import importlib
import sys
import time
from pathlib import Path
from types import ModuleType

import torch

from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from plans import reader
from plans.study_plan import Record, missing, read_study

STUDIES = sorted(x.stem for x in Path(__file__).parent.glob('studies/[a-z]*.py'))
FACTS = ('stage', 'method', 'seed', 'step', 'commit', 'seconds', 'settings')


def columns(study: ModuleType, fields: dict) -> list[str]:
    """Figures of a record: the study's, or ``metrics`` of the plan, and the fields' own."""
    found = [*fields.get('metrics', study.FIGURES)]
    for field, figures in getattr(study, 'MORE_FIGURES', {}).items():
        found += figures if fields.get(field) else ()
    return found


def run(plan_file: Path, out: Path) -> None:
    """Write the record of each set of a plan, seed by seed."""
    content = reader.read_file(plan_file)
    for name in reader.mapping(reader.mapping(content, 'the plan').get('sets'), 'sets') or ['']:
        plan = read_study(content, name, plan_file.parent)
        kind = plan.fields.get('study')
        if kind not in STUDIES:
            raise UserError(f'plan {plan_file} has study: {kind!r}. Fix: one of {STUDIES}')
        study = importlib.import_module(f'studies.{kind}')
        figures = columns(study, plan.fields)
        stem = f'{plan_file.stem}_{name}' if name else plan_file.stem
        record = Record(out / f'{stem}.csv', [*FACTS, *figures])
        data = None
        for facts, settings in missing(plan, record, plan.tune.get('metric') or figures[0]):
            if data is None:
                data = study.prepare(plan)
            begin = time.process_time()
            rows = []
            for step, found in study.train(facts, settings, data):
                seconds = f'{time.process_time() - begin:.1f}'
                shown = {key: f'{value:.6f}' for key, value in found.items()}
                rows.append(dict(facts, step=step, seconds=seconds, **shown))
            record.add(rows)
            last = ', '.join(f'{key} {rows[-1][key]}' for key in figures[:3])
            print(f'{stem}, {facts["method"]}, {facts["stage"]} seed {facts["seed"]}: {last}')


@show_user_errors(OSError, ValueError)
def main() -> None:
    parser = tool_parser(__doc__, out=Path('work_dirs/studies'))
    parser.add_argument('plan', type=Path)
    args = parser.parse_args()
    # Small tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    run(args.plan, args.out)


if __name__ == '__main__':
    sys.exit(main())
