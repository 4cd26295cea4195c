"""Rows of SOPRC (NeurIPS 2022)."""

from research.paper_tables.entry import PAGE, PaperTable, of_paper
from research.paper_tables.gpu_hours import Training, iterations
from research.paper_tables.starting_points import (
    CURVES,
    OMNIGLOT,
    OMNIGLOT_RESULTS,
    REPORT,
    RETRIEVAL,
    SEEDS,
    SOPRC_IMAGES,
    TRAIN,
    omniglot_run,
    on_each,
)

_SIMULATION = 'tools/analysis_tools/soprc_simulation.py --only '
_SIMULATIONS = 'configs/soprc/README.md'
_NETWORK = 'ResNet-50, 224 px'
_INAT = f'{TRAIN}soprc/r50_soprc_56x4-130k_inaturalist.py'
_TRAINVAL = (
    'train_dataloader.dataset.split=trainval, and num_classes of the head: 11318, 13134, 5690'
)
_FIGURE2 = 'omniglot_figure2'
_CURVES_OF = ('soprc', 'batch_56', 'batch_224', 'smooth_ap', 'fast_ap')
_CONV4 = {
    'soprc': 'soprc/conv4_soprc_omniglot',
    'smooth_ap': 'smooth_ap/conv4_smooth-ap_omniglot',
    # FastAP has no state, as SmoothAP has none: the checkpoint fits its config.
    'fast_ap': 'smooth_ap/conv4_smooth-ap_omniglot',
}
_FIGURE2_COMMANDS = (
    f'{SEEDS}soprc/omniglot_figure2.yaml --forked',
    f'{CURVES}work_dirs/{_FIGURE2}/convergence.png '
    + ' '.join(f'{x}=work_dirs/{_FIGURE2}/final/{x}' for x in _CURVES_OF),
    f'{REPORT}work_dirs/{_FIGURE2}/report '
    + ' '.join(omniglot_run(x, _FIGURE2, y) for x, y in _CONV4.items()),
)


def _full_table(number: int, data: str, config: str) -> PaperTable:
    """Tables 3 to 8: odd ones the train split, even ones trainval."""
    losses, split = (10, 'train') if number % 2 else (6, 'trainval')
    return PaperTable(
        f'table{number}',
        f'{data}, {split} split',
        'data',
        (f'{TRAIN}soprc/r50_soprc_56x4-{config}.py',),
        data,
        '' if number % 2 else _TRAINVAL,
        trainings=(Training(SOPRC_IMAGES[data], _NETWORK, losses),),
    )


TABLES = of_paper(
    'soprc',
    PaperTable(
        'figure1',
        'errors of the estimates, simulated',
        'here',
        (f'{_SIMULATION}sampling_rate_bias interpolation_error',),
        results=PAGE,
    ),
    PaperTable(
        'table1',
        'retrieval, ten losses',
        'small',
        (OMNIGLOT,),
        'data/omniglot',
        f'Omniglot; the published sets take r50_*_56x4-*.py of each loss ({RETRIEVAL})',
        OMNIGLOT_RESULTS,
        on_each(10),
    ),
    PaperTable(
        'figure2',
        'precision-recall, and convergence by loss and batch, iNaturalist',
        'ready',
        _FIGURE2_COMMANDS,
        'data/omniglot',
        'Omniglot, 100 iterations, one seed; the published set takes '
        'configs/soprc/r50_soprc_56x4-130k_inaturalist.py',
        trainings=(
            Training(SOPRC_IMAGES['iNaturalist-2018'], _NETWORK, 10),
            Training(iterations(130_000, 56 + 112), _NETWORK),
        ),
    ),
    PaperTable(
        'table2',
        'ablation on iNaturalist',
        'ready',
        (f'{SEEDS}soprc/omniglot_ablation.yaml --forked',),
        'data/omniglot',
        'Omniglot, 100 iterations, one seed; the published set takes '
        'configs/soprc/r50_soprc_56x4-130k_inaturalist.py with '
        "prior='batch', use_vector=False and lam1=lam2=0, by --cfg-options",
        trainings=(Training(SOPRC_IMAGES['iNaturalist-2018'], _NETWORK, 5),),
    ),
    PaperTable(
        'figure3',
        'densities of the simulated scores',
        'here',
        (f'{_SIMULATION}densities',),
        results=PAGE,
    ),
    PaperTable(
        'figure4',
        'errors of the estimates, all distributions',
        'here',
        (f'{_SIMULATION}sampling_rate_bias',),
        results=_SIMULATIONS,
    ),
    PaperTable(
        'figure5',
        'errors of interpolation',
        'here',
        (f'{_SIMULATION}interpolation_error',),
        results=PAGE,
    ),
    _full_table(3, 'Stanford Online Products', '50k_sop'),
    _full_table(4, 'Stanford Online Products', '50k_sop'),
    _full_table(5, 'iNaturalist-2018', '130k_inaturalist'),
    _full_table(6, 'iNaturalist-2018', '130k_inaturalist'),
    _full_table(7, 'PKU VehicleID', '100k_vehicleid'),
    _full_table(8, 'PKU VehicleID', '100k_vehicleid'),
    PaperTable(
        'figure6',
        'precision-recall, all data',
        'data',
        (f'{TRAIN}soprc/r50_soprc_56x4-50k_sop.py',),
        RETRIEVAL,
        'then tools/analysis_tools/retrieval_report.py; figure2 has that of Omniglot',
        trainings=on_each(10),
    ),
    PaperTable(
        'figure7',
        'convergence, all data',
        'ready',
        _FIGURE2_COMMANDS,
        'data/omniglot',
        f'Omniglot, as figure2; the published sets ({RETRIEVAL}) take '
        'r50_*_56x4-*.py and tools/analysis_tools/training_curves.py',
        trainings=on_each(10),
    ),
)
