"""Rows of stable AP (Chinese Journal of Computers, 2025)."""

from research.paper_tables.entry import PAGE, PaperTable, of_paper
from research.paper_tables.gpu_hours import Training, epochs, iterations
from research.paper_tables.starting_points import (
    CURVES,
    MAP,
    OMNIGLOT,
    OMNIGLOT_RESULTS,
    REPORT,
    RETRIEVAL,
    SEEDS,
    TRAIN,
    omniglot_run,
    on_each,
)

_SOP = 'configs/stable_ap/r50_stable-ap_28x4-100k_sop.py'
_FULL = 'ResNet-50 with feature mixup and eq. 6, 224 px'
_SOP_IMAGES = iterations(100_000, 112)
_INAT_IMAGES = iterations(270_000, 112)
#: Stable AP on the three data sets.
_OURS = (
    Training(_SOP_IMAGES, _FULL),
    Training(iterations(160_000, 112), _FULL),
    Training(_INAT_IMAGES, _FULL),
)
_ABLATION = tuple(
    Training(images, network, count)
    for images in (_SOP_IMAGES, _INAT_IMAGES)
    for network, count in (
        ('ResNet-50, 224 px', 1),  # row 1
        ('ResNet-50 with feature mixup, 224 px', 1),  # row 2
        ('ResNet-50 with eq. 6, 224 px', 1),  # row 3
        (_FULL, 2),  # rows 4 and 5
    )
)
_CONV4 = 'stable_ap/conv4_stable-ap_omniglot'
_FIGURE3 = 'omniglot_figure3'
_CURVES_OF = (
    *('tau_0.01', 'tau_0.03', 'tau_0.1', 'tau_0.3'),
    *('batch_56', 'batch_168', 'batch_224', 'smooth_ap', 'fast_ap'),
)
_CIFAR_NETWORK = 'ResNet-18 for CIFAR, 32 px'
_COCO_IMAGES = epochs(118_287, 100)


def _map(figure: str, data: str, number: int) -> PaperTable:
    return PaperTable(
        figure,
        f'map of the embeddings, {data}',
        'data',
        (f'{TRAIN}stable_ap/{_MAPPED[data]}.py',),
        data,
        'then tools/analysis_tools/embedding_map.py; figure5@omniglot runs',
        trainings=(_OURS[number],),
    )


_MAPPED = {
    'Stanford Online Products': 'r50_stable-ap_28x4-100k_sop',
    'PKU VehicleID': 'r50_stable-ap_28x4-160k_vehicleid',
    'iNaturalist-2018': 'r50_stable-ap_28x4-270k_inaturalist',
}

TABLES = of_paper(
    'stable_ap',
    PaperTable('figure1', 'AP against AUROC and precision at K', 'out'),
    PaperTable(
        'table1',
        'sizes of the retrieval data sets',
        'data',
        (f'tools/dataset_converters/check_retrieval.py {_SOP}',),
        RETRIEVAL,
        'takes no GPU',
    ),
    PaperTable(
        'table1@omniglot',
        'sizes of the data set of our retrieval tables',
        'small',
        (f'tools/dataset_converters/check_retrieval.py configs/{_CONV4}.py',),
        'data/omniglot',
        results=PAGE,
    ),
    PaperTable(
        'table2',
        'retrieval, eleven losses',
        'small',
        (OMNIGLOT,),
        'data/omniglot',
        f'Omniglot, without SoDeep; the published sets take r50_*.py of each loss ({RETRIEVAL})',
        OMNIGLOT_RESULTS,
        (*_OURS, *on_each(10)),
    ),
    PaperTable(
        'figure3',
        'precision-recall, and convergence by loss, tau and batch',
        'ready',
        (
            f'{SEEDS}stable_ap/omniglot_figure3.yaml --forked',
            f'{CURVES}work_dirs/{_FIGURE3}/convergence.png '
            + ' '.join(f'{name}=work_dirs/{_FIGURE3}/final/{name}' for name in _CURVES_OF),
            f'{REPORT}work_dirs/{_FIGURE3}/report '
            + ' '.join(
                (
                    omniglot_run('tau_0.1', _FIGURE3, _CONV4),
                    omniglot_run('smooth_ap', _FIGURE3, 'smooth_ap/conv4_smooth-ap_omniglot'),
                    # FastAP has no state, as SmoothAP has none: the checkpoint fits its config.
                    omniglot_run('fast_ap', _FIGURE3, 'smooth_ap/conv4_smooth-ap_omniglot'),
                )
            ),
        ),
        'data/omniglot',
        'Omniglot, 60 iterations, one seed; the published set takes '
        f'{_SOP} with tau and batch by --cfg-options',
        trainings=(
            Training(_SOP_IMAGES, _FULL, 4),
            Training(iterations(100_000, 56 + 168 + 224), _FULL),
            Training(iterations(50_000, 224), 'ResNet-50, 224 px', 3),
        ),
    ),
    PaperTable(
        'table3',
        'time of forward, loss and backward',
        'small',
        (
            'tools/benchmarks/training_step.py --parts --threads 1 --batch-size 112 --image-size '
            '28 28 configs/smooth_ap/conv4_smooth-ap_omniglot.py '
            f'configs/soprc/conv4_soprc_omniglot.py configs/{_CONV4}.py',
            'tools/benchmarks/training_step.py --parts --threads 1 --repeats 9',
        ),
        '',
        'a small network on a CPU, made-up images, and a small detector; on '
        'a GPU: --device cuda --image-size 224 224 and the r50_*_sop.py',
        results=PAGE,
    ),
    PaperTable(
        'table4',
        'ablation: mean score, mixup, t',
        'ready',
        (f'{SEEDS}stable_ap/omniglot_ablation.yaml --forked',),
        'data/omniglot',
        'Omniglot, 100 iterations, one seed; the published sets take '
        f"{_SOP} with mean_mode='fixed' and fixed_mean, the backbone without "
        'DeepFeatureMixup, t=1, by --cfg-options',
        trainings=_ABLATION,
    ),
    PaperTable(
        'table5',
        'detection on COCO',
        'small',
        (f'{SEEDS}stable_ap/bccd_losses.yaml --jobs 2',),
        'data/bccd',
        'blood cells; COCO takes retinanet_r50_*_4xb8-512-100e_coco.py and '
        'faster-rcnn_r50_*_4xb8-512-100e_coco.py',
        'configs/stable_ap/README.md',
        (
            Training(_COCO_IMAGES, 'RetinaNet, ResNet-50 FPN, 512 px', 5),
            Training(_COCO_IMAGES, 'Faster R-CNN, ResNet-50 FPN, 512 px', 2),
        ),
    ),
    PaperTable(
        'table6',
        'long-tail classification',
        'small',
        (f'{SEEDS}long_tail/cifar10_losses_ir100.yaml --forked',),
        'data/cifar10_16',
        'small images, one binary task; the published sets take configs/long_tail/resnet*.py',
        'configs/long_tail/README.md',
        # Nine losses, four seeds.
        (
            Training(epochs(12_406, 100), _CIFAR_NETWORK, 36),
            Training(epochs(10_847, 100), _CIFAR_NETWORK, 36),
            Training(epochs(89_696, 20), 'ResNet-50, 224 px', 36),
        ),
    ),
    PaperTable(
        'figure4',
        'best images of some queries',
        'data',
        (f'{TRAIN}stable_ap/r50_stable-ap_28x4-100k_sop.py',),
        RETRIEVAL,
        'then tools/analysis_tools/retrieval_report.py; the report of '
        'figure3 has such sheets of Omniglot',
        trainings=_OURS,
    ),
    *(_map(f'figure{5 + number}', data, number) for number, data in enumerate(_MAPPED)),
    PaperTable(
        'figure5@omniglot',
        'map of the embeddings, unseen characters',
        'ready',
        (
            f'{SEEDS}stable_ap/omniglot_figure3.yaml --forked',
            f'{MAP}work_dirs/{_FIGURE3}/map.png --classes 10 '
            + ' '.join(
                (
                    omniglot_run('tau_0.1', _FIGURE3, _CONV4),
                    omniglot_run('smooth_ap', _FIGURE3, 'smooth_ap/conv4_smooth-ap_omniglot'),
                )
            ),
        ),
        'data/omniglot',
        't-SNE by scikit-learn, ten characters of alphabets not trained on',
    ),
    PaperTable(
        'figure8',
        'detections on COCO',
        'data',
        (f'{TRAIN}stable_ap/retinanet_r50_fpn_atss_stable-ap_4xb8-512-100e_coco.py',),
        'COCO',
        'then tools/analysis_tools/draw_detections.py',
        trainings=(Training(_COCO_IMAGES, 'RetinaNet, ResNet-50 FPN, 512 px'),),
    ),
)
