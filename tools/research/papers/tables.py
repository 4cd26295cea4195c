"""Tables and figures of the papers: what each takes, and how it is made."""

import glob
import json
import re
import resource
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import yaml
from rich.console import Console

from mmrank.errors import UserError
from mmrank.experiments.records import read_final_rows, values_of
from mmrank.files import write_atomically
from mmrank.pictures.tables import markdown_table
from plans.config_plan import read_plan

ROOT = Path(__file__).resolve().parents[3]
PAPERS = Path(__file__).parent
OUT = Path('work_dirs/papers')
SIZES = ('small', 'published')
GPU = 'A100 80 GB, TF32'
#: What that GPU trains: 938 images/s of ResNet-50, 4.09 GMAC each.
GMAC_A_SECOND = 938 * 4.09


class PaperTable(NamedTuple):
    """A table or figure of a paper. One without plan and commands shows no result."""

    name: str  # ``paper/table2``, or ``paper/table2@data`` for a further way to make it
    title: str  # What it shows
    plan: str = ''  # Trainings: a plan of run_seeds.py
    # Sets of the plan by size; without a plan there is one, or one a command's config
    small: Sequence[str] = ()
    published: Sequence[str] = ()
    data: Mapping[str, Sequence[str]] = {}  # What each set needs, by name in data.yaml
    # What is run for each set after its trainings, with ``python`` left out. ``{out}`` is the
    # folder of the trainings, ``{figures}`` of what is drawn, ``{set}`` the set; ``{run[row]}`` is
    # the folder of a row's first seed, ``{files[row]}`` its config and checkpoint,
    # ``{model[row]}`` the same for tools that take ``row=config,checkpoint``; ``{runs}``
    # (``row=folder``) and ``{models}`` are all rows. A path with ``*`` stands for the one that
    # matches then.
    commands: Sequence[str] = ()
    note: str = ''  # How the small size differs from the paper, or why there is none
    results: str = ''  # File of this repository with what came out
    # Trainings of each set: how many, million images of each, and the network of data.yaml
    trainings: Mapping[str, Sequence[tuple[int, float, str]]] = {}

    @property
    def gpu_hours(self) -> dict[str, float]:
        """GPU hours of the published size, an estimate, by what they are the sum of."""
        hours = {}
        for name in self.published:
            for number, images, network in self.trainings.get(name, ()):
                gmac = NETWORKS[network]
                text = f'{name}: {number} x {images:g} M images, {network}, {gmac:.2f} GMAC'
                hours[text] = number * images * 1e6 * gmac / GMAC_A_SECOND / 3600
        return hours

    @property
    def shows_results(self) -> bool:
        """Whether there is anything to run."""
        return bool(self.plan or self.commands)


def read_tables(path: Path) -> Iterator[PaperTable]:
    """All tables and figures of a paper, each with what the sets of its plan need."""
    content = yaml.safe_load(path.read_text('utf-8'))
    for name, fields in content['tables'].items():
        plan = content.get('plans', {}).get(fields.get('plan'), {'sets': {}})
        fields['name'] = f'{path.stem}/{name}'
        fields['note'] = '; '.join(x['note'] for x in (plan, fields) if 'note' in x)
        sets = {
            key: x
            for key in (*fields.get('small', ()), *fields.get('published', ()))
            for pattern, x in plan['sets'].items()
            if fnmatchcase(key, pattern)
        }
        fields.setdefault('data', {key: x['data'] for key, x in sets.items()})
        trained = {key: x['trainings'] for key, x in sets.items() if 'trainings' in x}
        if 'plan' in fields:
            fields['plan'] = f'tools/research/papers/{path.stem}/{fields["plan"]}.yaml'
        yield PaperTable(**fields, trainings=trained)


_INPUTS = yaml.safe_load((PAPERS / 'data.yaml').read_text('utf-8'))
DATA = _INPUTS['data']
NETWORKS = _INPUTS['networks']
TABLES = {
    table.name: table
    for path in sorted(PAPERS.glob('*.yaml'))
    if path.stem != 'data'
    for table in read_tables(path)
}


def missing(data: Sequence[str]) -> list[str]:
    """What is not there and is not made by a command, with where to get it and its licence."""
    return [
        f'{DATA[name]["path"]} (from {DATA[name]["source"]}; {DATA[name]["licence"]})'
        for name in data
        if not Path(DATA[name]['path']).exists() and 'made_by' not in DATA[name]
    ]


def makers_of(data: Sequence[str]) -> list[str]:
    """The commands that make what is not there and can be made."""
    made = [DATA[name] for name in data if 'made_by' in DATA[name]]
    return [item['made_by'] for item in made if not Path(item['path']).exists()]


def steps_of(entry: PaperTable, size: str, set_name: str) -> Iterator[str]:
    """The commands that make a set of a table."""
    if entry.plan:
        yield f'tools/research/run_seeds.py --plan {entry.plan} --set {set_name}'
    places = {'out': figures_of(entry, set_name), 'figures': figures_of(entry, size)}
    if entry.plan:
        plan = read_plan(Path(ROOT, entry.plan), set_name)
        places['out'] = plan.out_dir
        first = f'seed_{plan.seeds[0]}-*'
        run = {x.name: f'{plan.out_dir}/final/{x.name}/{first}' for x in plan.methods}
        model = {name: f'{name}={folder}/*.py,{folder}/*.pth' for name, folder in run.items()}
        files = {name: f'{folder}/*.py {folder}/*.pth' for name, folder in run.items()}
        places |= {'run': run, 'model': model, 'files': files}
        places['runs'] = ' '.join(f'{name}={folder}' for name, folder in run.items())
        places['models'] = ' '.join(model.values())
    for command in entry.commands:
        yield command.format(set=set_name, **places)


def figures_of(entry: PaperTable, size: str) -> Path:
    """The folder of what is made of a table at a size."""
    return OUT / size / entry.name.replace('/', '_')


def expand(word: str) -> str:
    """Replace the paths of a word that have ``*`` by those that match, one each."""
    parts = re.split('([,=])', word)
    for place, path in enumerate(parts):
        if '*' not in path or '/' not in path:
            continue
        found = sorted(glob.glob(path, root_dir=ROOT))
        if len(found) != 1:
            raise UserError(
                f'{path!r} matches {len(found)} files, {found[:3]}; one is required. Fix: remove '
                'what earlier versions of the plan have left there'
            )
        parts[place] = found[0]
    return ''.join(parts)


def run(entry: PaperTable, size: str, options: Sequence[str], console: Console) -> dict:
    """Run the commands of all sets; return the status, CPU seconds, and what is missing.

    The seconds are those of all commands but the trainings, which record their own.
    """
    outcome = {'status': 0, 'seconds': 0, 'missing': [], 'sets': []}
    for set_name in getattr(entry, size):
        data = entry.data.get(set_name, ())
        absent = missing(data)
        outcome['missing'] += absent
        if absent:
            outcome['status'] = outcome['status'] or 3
            continue
        makers = makers_of(data)
        steps = [*makers, *steps_of(entry, size, set_name)]
        for number, step in enumerate(steps, -len(makers)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            words = [expand(word) for word in shlex.split(step)]
            words = [sys.executable, *words, *(options if number == 0 else ())]
            status = subprocess.run(words, cwd=ROOT, check=False).returncode
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            if number != 0 or not entry.plan:
                outcome['seconds'] += round(seconds)
            console.print(f'{entry.name}, {set_name}: status {status}, {seconds:.0f} CPU s: {step}')
            if status:
                return {**outcome, 'status': status}
        outcome['sets'].append(set_name)
    return outcome


def table_of(entry: PaperTable, sets: Sequence[str]) -> str:
    """The table in the layout of the paper: methods as rows, metrics of each set as columns.

    A cell is the mean and the standard deviation over seeds, with what the paper prints in
    parentheses. What it prints of sets that were not run comes last.
    """
    plans = {
        x: read_plan(Path(ROOT, entry.plan), x) for x in dict.fromkeys((*sets, *entry.published))
    }
    names = list(dict.fromkeys(x.name for name in sets for x in plans[name].methods))
    header = ['method']
    columns = []
    for set_name, plan in plans.items():
        runs = read_final_rows(Path(ROOT, plan.out_dir, 'runs.csv')) if set_name in sets else []
        for number, metric in enumerate(plan.metrics):
            measured = values_of(runs, metric, plan.scale)
            *further, last = metric.split('/')
            column = []
            for name in names:
                values = [*measured.get(name, {}).values()]
                spread = f' ± {statistics.stdev(values):.2g}' if len(values) > 1 else ''
                cell = f'{statistics.mean(values):.4g}{spread}' if values else ''
                known = plan.printed.get(name, [])[number : number + 1]
                cell = ' '.join([cell, *(f'({x})' for x in known if x is not None)])
                column.append(cell.strip())
            if any(column):
                header.append(' '.join([set_name, *further[:-1], last]))
                columns.append(column)
    return '\n'.join(markdown_table(header, list(zip(names, *columns)))) + '\n'


def make(entry: PaperTable, size: str, options: Sequence[str], console: Console) -> dict:
    """Run a table, write its files, and return what there is to say of it."""
    folder = figures_of(entry, size)
    outcome = run(entry, size, options, console)
    if entry.plan and outcome['sets']:
        text = table_of(entry, outcome['sets'])
        write_atomically(text.encode(), folder / 'table.md')
        console.print(text, soft_wrap=True, highlight=False)
    write_atomically(json.dumps(outcome).encode(), folder / 'outcome.json')
    return outcome
