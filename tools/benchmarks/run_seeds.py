"""Compare methods over seeds: train, tune, test, and report.

Each method is trained once per seed; the report has mean +- std per metric, the difference to a
baseline paired by seed with its 95 % confidence interval and a paired t-test, and a box plot. A
tuning is done on validation data with its own seeds, the final runs on test data.

    python tools/benchmarks/run_seeds.py --plan plan.yaml --jobs 2

    # plan.yaml
    out_dir: work_dirs/bccd
    seeds: [0, 1, 2]
    metrics: [coco/bbox_mAP, coco/bbox_mAP_50]
    baseline: focal            # default: the first method
    lower_better: []           # metrics of which less is better
    scale: 100                 # factor of the metrics in the report
    cfg_options: {train_cfg.max_epochs: 3}         # for all methods
    methods:
      - {name: focal, config: focal.py}
      - name: stable_ap
        config: stable_ap.py
        cfg_options: {model.bbox_head.loss_cls.tau: 1.0}
        tune: {optim_wrapper.optimizer.lr: [1e-4, 4e-4]}  # its own grid
      - name: ap_loss           # another loss: no config of its own is needed
        config: stable_ap.py
        cfg_options: {model.bbox_head.loss_cls: {_delete_: true, type: mmrank.APLoss}}
    tune:                      # leave out to tune nothing
      grid: {optim_wrapper.optimizer.lr: [1e-4, 2e-4]}
      seeds: [100, 101]
      metric: coco/bbox_mAP    # default: the first of metrics
      cfg_options: {}          # of the tuning runs alone
      folds: [0]               # tune in these folds for all of them
    folds:                     # cross-validation, in place of seeds: each is
      - {train_dataloader.dataset.split_seed: 0}  # tuned on its own
      - {train_dataloader.dataset.split_seed: 1}  # validation data

On a cluster, with the folders on a disk that all its machines share:
    python tools/benchmarks/run_seeds.py --plan plan.yaml --executor slurm \
        --executor-options slurm_partition=gpu timeout_min=480 cpus_per_task=8 gpus_per_node=1

    # or in plan.yaml
    executor: {type: slurm, slurm_partition: gpu, timeout_min: 480, gpus_per_node: 1}

Run the same command again after an interruption: finished trainings are kept, others resume; a
failed one is started --retries times more. A changed config or option gets new folders, so a row
never mixes two versions.

Written to the out dir: report.md, summary.csv, runs.csv, boxplot.png.
"""

from mmrank.interruption import AGAIN, end_on_signals

if __name__ == '__main__':
    end_on_signals(AGAIN)  # the imports below take seconds
import argparse
import math
import signal
import sys

from rich.console import Console

from mmrank.apis.common.folder_lock import lock_folder
from mmrank.apis.seeds.arguments import make_executor, make_parser
from mmrank.apis.seeds.executors import LocalExecutor, SlurmExecutor
from mmrank.apis.seeds.plan import SeedPlan, read_plan
from mmrank.apis.seeds.report import report, work_off
from mmrank.apis.seeds.runs import RunQueue
from mmrank.apis.seeds.statistics import check_splits, choose
from mmrank.errors import show_user_errors


def parse_args(arguments=None) -> argparse.Namespace:
    return make_parser(__doc__).parse_args(arguments)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the tool; return the exit status."""
    plan = read_plan(args.plan)
    if args.report_only:  # no cluster is needed for it
        return run_on(LocalExecutor(), plan, args, console)
    return run_on(make_executor(args, plan), plan, args, console)


def run_on(
    executor: LocalExecutor | SlurmExecutor,
    plan: SeedPlan,
    args: argparse.Namespace,
    console: Console,
) -> int:
    """Run a plan on an executor; return the exit status."""
    queue = RunQueue(plan, executor, retries=args.retries)
    check_splits(plan)
    tuning_runs = plan.tuning_runs()
    tuned = [method for method in plan.methods if method.grid]
    total = len(tuning_runs) + len(plan.methods) * len(plan.seeds)
    console.print(
        f'{len(plan.methods)} methods, {total} trainings ({len(tuning_runs)} for tuning), '
        + (
            'as many at a time as the scheduler permits.'
            if math.isinf(executor.jobs)
            else f'{executor.jobs} at a time.'
        )
    )
    with lock_folder(plan.out_dir):
        if args.report_only:
            # Only what is finished: the queue then runs nothing.
            tuning_outcomes = queue.run([x for x in tuning_runs if x.result_file.is_file()])
            chosen, rows = choose(plan, tuning_outcomes)
            runs = plan.final_runs(chosen)
            outcomes = queue.run([x for x in runs if x.result_file.is_file()])
        else:
            tuning_outcomes = work_off(console, queue, tuning_runs, 'tuning') if tuning_runs else []
            chosen, rows = choose(plan, tuning_outcomes)
            for (name, fold), choice in chosen.items():
                where = '' if fold is None else f', fold {fold}'
                console.print(f'tuned {name}{where}: {choice}')
            outcomes = work_off(console, queue, plan.final_runs(chosen), 'test runs')
        report(console, plan, outcomes, tuning_outcomes, rows)
    untunable = {
        method.name
        for method in tuned
        for fold in plan.fold_numbers
        if (method.name, fold) not in chosen
    }
    if untunable:
        console.print(
            f'[red]No value of {sorted(untunable)} finished all tuning '
            'seeds:[/red] these methods were not tested.'
        )
    failed = any(item.error for item in tuning_outcomes + outcomes)
    return 1 if failed or untunable else 0


@show_user_errors(ImportError, on_interrupt=AGAIN)
def main() -> int:
    console = Console()
    args = parse_args()
    # A termination is treated as an interrupt: the trainings end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run(args, console)


if __name__ == '__main__':
    sys.exit(main())
