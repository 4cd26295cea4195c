"""Compare methods over seeds: train, tune, test, and report.

Each method is trained once per seed; the report has mean +- std per metric, the difference to a
baseline paired by seed with its 95 % confidence interval and a paired t-test, and a box plot. A
tuning is done on validation data with its own seeds, the final runs on test data.

    python tools/research/run_seeds.py --plan plan.yaml --jobs 2

    # plan.yaml
    out_dir: work_dirs/bccd
    metrics: [coco/bbox_mAP, coco/bbox_mAP_50]
    baseline: focal            # default: the first method
    scale: 100                 # factor of the metrics in the report
    seeds: [0, 1, 2]
    cfg_options: {train_cfg.max_epochs: 3}              # of all methods
    config: stable_ap.py       # of methods without one: a file, or a list of bases that are merged
    methods:
      - {name: focal, config: focal.py}
      - name: stable_ap
        cfg_options: {model.bbox_head.loss_cls.tau: 1.0}
        tune: {optim_wrapper.optimizer.lr: [1e-4, 4e-4]}
      - name: ap_loss          # another loss: no config of its own is needed
        cfg_options: {model.bbox_head.loss_cls: {_delete_: true, type: mmrank.APLoss}}
    tune:
      grid: {optim_wrapper.optimizer.lr: [1e-4, 2e-4]}
      seeds: [100, 101]
      metric: coco/bbox_mAP    # default: the first of metrics
      cfg_options: {}          # of the tuning runs alone
      folds: [0]               # their validation data decide for all folds
    folds:                     # cross-validation, in place of seeds
      - {train_dataloader.dataset.split_seed: 0}
      - {train_dataloader.dataset.split_seed: 1}
    sets:                      # one for each --set
      small: {seeds: [0], leave_out: [ap_loss]}

tools/research/plans/reader.py says more of methods, sets and tuning.

Run the same command again after an interruption: finished trainings are kept, others resume; a
failed one is started --retries times more. A changed config or option gets new folders, so a row
never mixes two versions.

Written to the out dir: report.md, runs.csv, boxplot.png.
"""

from mmrank.interruption import AGAIN, end_on_signals

if __name__ == '__main__':
    end_on_signals(AGAIN)  # the imports below take seconds
import argparse
import signal
import sys

from rich.console import Console

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors
from mmrank.experiments.report import report
from mmrank.experiments.runs import count_cores, work_off
from mmrank.runners.folder_lock import lock_folder
from plans.config_plan import check_splits, choose, read_plan, tuning_section


def parse_args(arguments=None) -> argparse.Namespace:
    jobs = (
        f'trainings at a time, among which the {count_cores()} cores are divided unless '
        'OMP_NUM_THREADS is set'
    )
    retries = 'how often a training that ends without a result is started again, to resume'
    parser = tool_parser(
        __doc__,
        jobs=(1, jobs),
        retries=(1, retries),
        report_only=(False, 'write the report from what is finished, train nothing'),
    )
    parser.add_argument('--plan', required=True, help='plan file, YAML')
    parser.add_argument('--set', default='', help='one of the sets of the plan, if it has any')
    return parser.parse_args(arguments)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the plan; return the exit status."""
    plan = read_plan(args.plan, args.set)
    check_splits(plan)
    tuning_runs = plan.tuning_runs()
    total = len(tuning_runs) + len(plan.methods) * len(plan.seeds)
    console.print(
        f'{len(plan.methods)} methods, {total} trainings ({len(tuning_runs)} for tuning), '
        f'{args.jobs} at a time.'
    )

    def outcomes_of(runs, *metrics):
        if args.report_only:
            runs = [x for x in runs if x.result_file.is_file()]
        return work_off(console, runs, metrics, jobs=args.jobs, retries=args.retries)

    with lock_folder(plan.out_dir):
        tuning_outcomes = outcomes_of(tuning_runs, plan.tune_metric)
        chosen, rows = choose(plan, tuning_outcomes)
        for name, choice in chosen.items():
            console.print(f'tuned {name}: {choice}')
        outcomes = outcomes_of(plan.final_runs(chosen), *plan.metrics)
        notes = tuning_section(plan, rows) if rows else ()
        report(console, plan, outcomes, tuning_outcomes, notes)
    untunable = {x.name for x in plan.methods if x.grid and x.name not in chosen}
    if untunable:
        console.print(
            f'[red]No value of {sorted(untunable)} finished all tuning '
            'seeds:[/red] these methods were not tested.'
        )
    # A value that diverges is not chosen: that is what a tuning is for.
    failed = any(item.error for item in outcomes)
    return 1 if failed or untunable else 0


@show_user_errors(OSError, on_interrupt=AGAIN)
def main() -> int:
    args = parse_args()
    # A termination is treated as an interrupt: the trainings end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run(args, Console())


if __name__ == '__main__':
    sys.exit(main())
