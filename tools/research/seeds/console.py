"""What a comparison over seeds shows while it runs, and leaves when done."""

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from mmrank.files import write_atomically

from .box_plot import draw_box_plot
from .outcome import Outcome
from .plan import Run, SeedPlan
from .report import write_csv, write_markdown, write_runs_csv
from .runs import RunQueue
from .statistics import collect_values, summarise


def work_off(console: Console, queue: RunQueue, runs: Sequence[Run], title: str) -> list[Outcome]:
    """Run a stage with a line per active training and one for all.

    Args:
        console: Where to write.
        queue: What works off the runs.
        runs: The runs of the stage.
        title: Name of the stage.

    Returns:
        The outcomes, see :meth:`RunQueue.run`.
    """
    columns = (
        SpinnerColumn(),
        TextColumn('{task.description}'),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn('{task.fields[text]}'),
    )
    lines: dict[str, int] = {}
    shown = time.monotonic()
    with Progress(*columns, console=console) as progress:
        overall = progress.add_task(title, total=len(runs), text='')

        def start(run) -> None:
            lines[run.label] = progress.add_task(f'  {run.label}', total=1, text='starting')
            console.print(f'started {run.label}: {run.folder}')

        def again(run, fault) -> None:
            progress.remove_task(lines.pop(run.label))
            first = fault.splitlines()[0]
            console.print(
                f'{run.label} died ({first}); it is started once more',
                markup=False,
                highlight=False,
            )

        def update(run, text) -> None:
            nonlocal shown
            progress.update(lines[run.label], text=text)
            # Without a terminal the lines above are not drawn.
            if not console.is_terminal and time.monotonic() - shown > 30:
                shown = time.monotonic()
                console.print(f'{run.label}: {text}')

        def end(outcome) -> None:
            label = outcome.run.label
            if label in lines:
                progress.remove_task(lines.pop(label))
            progress.advance(overall)
            if outcome.error:
                console.print(f'[red]failed[/red] {label}', highlight=False)
                console.print(outcome.error, markup=False, highlight=False)
                return
            keys = queue.plan.metrics
            values = ', '.join(
                f'{key} {outcome.metrics[key]:.4f}' for key in keys if key in outcome.metrics
            )
            took = f' in {outcome.seconds:.0f} s' if outcome.seconds else ''
            console.print(f'done{took} {label}: {values}')

        queue.on_start, queue.on_again = start, again
        queue.on_progress, queue.on_end = update, end
        return queue.run(runs)


def report(
    console: Console,
    plan: SeedPlan,
    outcomes: Sequence[Outcome],
    tuning_outcomes: Sequence[Outcome],
    tuning: Sequence[Mapping],
) -> None:
    """Write the files of the report and show its table.

    Args:
        console: Where to show it.
        plan: The plan; the files go to its folder.
        outcomes: Outcomes of the final runs.
        tuning_outcomes: Outcomes of the tuning.
        tuning: Rows of :func:`research.seeds.tuning.choose`.
    """
    values = collect_values(plan, outcomes)
    cells = summarise(plan, values)
    failures = [item for item in [*tuning_outcomes, *outcomes] if item.error]
    text = write_markdown(plan, cells, tuning=tuning, failures=failures)
    folder = plan.out_dir
    files = [
        folder / 'report.md',
        write_csv(cells, folder / 'summary.csv'),
        write_runs_csv(plan, [*tuning_outcomes, *outcomes], folder / 'runs.csv'),
        folder / 'boxplot.png',
    ]
    write_atomically(text.encode(), files[0])
    draw_box_plot(
        values,
        plan.metrics,
        files[-1],
        lower_better=plan.lower_better,
        unit='fold' if plan.folds else 'seed',
    )

    table = Table(title=f'test data, baseline {plan.baseline}')
    for title in ('method', 'metric', 'n', 'mean', 'std', 'difference', 'p'):
        table.add_column(title, justify='left' if title[0] == 'm' else 'right')
    for cell in cells:
        table.add_row(
            cell.method,
            cell.metric,
            str(cell.n),
            *(
                '' if value != value else f'{value:.4g}'
                for value in (cell.mean, cell.std, cell.difference, cell.p_value)
            ),
        )
    console.print(table)
    for path in files:
        console.print(f'wrote {path}')
