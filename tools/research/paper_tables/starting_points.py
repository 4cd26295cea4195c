"""Commands, data and trainings that rows of several papers share."""

from research.paper_tables.gpu_hours import Training, iterations

SEEDS = 'tools/benchmarks/run_seeds.py --plan configs/'
TRAIN = 'tools/train.py configs/'
CURVES = 'tools/analysis_tools/training_curves.py --keys retrieval/mAP --out '
REPORT = 'tools/analysis_tools/retrieval_report.py --sheets random --out-dir '
MAP = 'tools/analysis_tools/embedding_map.py --out '

OMNIGLOT = f'{SEEDS}soprc/omniglot_losses.yaml --jobs 2'
OMNIGLOT_RESULTS = 'configs/soprc/README.md'
RETRIEVAL = 'Stanford Online Products, PKU VehicleID, iNaturalist-2018'

#: The three data sets and the schedules of SOPRC and of its rivals.
SOPRC_IMAGES = {
    'Stanford Online Products': iterations(50_000, 224),
    'PKU VehicleID': iterations(100_000, 224),
    'iNaturalist-2018': iterations(130_000, 224),
}


def on_each(count: int) -> tuple[Training, ...]:
    """Trainings of ResNet-50 on each data set, by SOPRC's schedules."""
    return tuple(Training(images, 'ResNet-50, 224 px', count) for images in SOPRC_IMAGES.values())


def omniglot_run(method: str, plan: str, config: str) -> str:
    """``NAME=CONFIG,CHECKPOINT`` of the first seed of a plan's method."""
    return f'{method}=configs/{config}.py,work_dirs/{plan}/final/{method}/seed_0-*/iter_*.pth'
