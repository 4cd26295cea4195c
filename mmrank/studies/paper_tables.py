"""Every table and figure of the four papers: what makes it here."""

from dataclasses import dataclass

#: What can be said of a table, and how it is shown.
STATES = {
    'here': 'run here as published, by the command',
    'small': 'run here on small data, by the command',
    'data': 'runnable with the named data and a GPU; not run here',
    'missing': 'nothing here makes it yet',
    'out': 'left out: it shows no result',
}

SEEDS = 'tools/benchmarks/run_seeds.py --plan configs/'
RETRIEVAL = 'Stanford Online Products, PKU VehicleID, iNaturalist-2018'
TRAIN = 'tools/train.py configs/'
OMNIGLOT = f'{SEEDS}soprc/omniglot_losses.yaml'
CIFAR_VIEWS = f'{SEEDS}isogclr/cifar10-lt_contrastive.yaml'
CAPTIONS = f'{SEEDS}clip/caption_losses.yaml'
LONG_TAIL = f'{SEEDS}long_tail/cifar10_losses_ir100.yaml'
SIMULATION = 'tools/analysis_tools/soprc_simulation.py'
IN_BATCH = (
    'tools/benchmarks/in_batch_table.py '
    'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'
)


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper.

    Attributes:
        name: ``paper/table2``.
        title: What it shows.
        state: One of :data:`STATES`.
        command: What runs it, with ``python`` left out; or, with ``data``,
            the first of the trainings that it takes. '' where there is none.
        needs: Data that has to be there, and how much is trained.
        note: What differs, or why it is not there.
    """

    name: str
    title: str
    state: str
    command: str = ''
    needs: str = ''
    note: str = ''


def _of(paper: str, *rows: tuple[str, ...]) -> list[PaperTable]:
    return [PaperTable(f'{paper}/{row[0]}', *row[1:]) for row in rows]


_SAP_TRAINING = f'{TRAIN}stable_ap/r50_stable-ap_28x4-100k_sop.py'
_SAP_BUDGET = '100,000 to 270,000 iterations of 112 images a training'
_SOPRC_BUDGET = '50,000 to 130,000 iterations of 224 images a training'
_TRAINVAL = (
    'train_dataloader.dataset.split=trainval, and num_classes of the head: '
    '11318, 13134, 5690'
)
TABLES = [
    *_of(
        'stable_ap',
        ('figure1', 'AP against AUROC and precision at K', 'out'),
        ('table1', 'sizes of the retrieval data sets', 'data',
         'tools/dataset_converters/check_retrieval.py '
         'configs/stable_ap/r50_stable-ap_28x4-100k_sop.py', RETRIEVAL),
        ('table2', 'retrieval, eleven losses', 'small', OMNIGLOT,
         'data/omniglot',
         'Omniglot; the published sets take r50_*.py of each loss '
         f'({RETRIEVAL}; {_SAP_BUDGET})'),
        ('figure3', 'precision-recall and convergence by tau and batch',
         'data', _SAP_TRAINING, f'{RETRIEVAL}; {_SAP_BUDGET}',
         'then tools/analysis_tools/retrieval_report.py and '
         'training_curves.py; tau and batch by --cfg-options'),
        ('table3', 'time of forward, loss and backward', 'small',
         'tools/benchmarks/retrieval_losses_speed.py', '',
         'loss and its backward alone, not split from the network'),
        ('table4', 'ablation: mean score, mixup, t', 'data', _SAP_TRAINING,
         f'{RETRIEVAL}; five trainings of 100,000 and 270,000 iterations',
         "mean_mode='fixed' and fixed_mean, the backbone without "
         'DeepFeatureMixup, t=1, by --cfg-options'),
        ('table5', 'detection on COCO', 'small',
         f'{SEEDS}stable_ap/bccd_rivals.yaml --jobs 2', 'data/bccd',
         'blood cells; COCO takes retinanet_r50_*_4xb8-512-100e_coco.py, 100 '
         'epochs a training'),
        ('table6', 'long-tail classification', 'small',
         f'{LONG_TAIL} --forked', 'data/cifar10_16',
         'small images, one binary task; the published sets take '
         'configs/long_tail/resnet*.py'),
        ('figure4', 'best images of some queries', 'data', _SAP_TRAINING,
         f'{RETRIEVAL}; {_SAP_BUDGET}',
         'then tools/analysis_tools/retrieval_report.py'),
        ('figure5', 'map of the embeddings, SOP', 'missing'),
        ('figure6', 'map of the embeddings, VehicleID', 'missing'),
        ('figure7', 'map of the embeddings, iNaturalist', 'missing'),
        ('figure8', 'detections on COCO', 'data',
         f'{TRAIN}stable_ap/'
         'retinanet_r50_fpn_atss_stable-ap_4xb8-512-100e_coco.py',
         'COCO; 100 epochs', 'then tools/analysis_tools/draw_detections.py'),
    ),
    *_of(
        'soprc',
        ('figure1', 'errors of the estimates, simulated', 'here', SIMULATION),
        ('table1', 'retrieval, ten losses', 'small', OMNIGLOT,
         'data/omniglot',
         'Omniglot; the published sets take r50_*_56x4-*.py of each loss '
         f'({RETRIEVAL}; {_SOPRC_BUDGET})'),
        ('figure2', 'precision-recall and convergence, iNaturalist', 'data',
         f'{TRAIN}soprc/r50_soprc_56x4-130k_inaturalist.py',
         'iNaturalist-2018; 130,000 iterations a training',
         'then tools/analysis_tools/retrieval_report.py and '
         'training_curves.py'),
        ('table2', 'ablation on iNaturalist', 'data',
         f'{TRAIN}soprc/r50_soprc_56x4-130k_inaturalist.py',
         'iNaturalist-2018; five trainings of 130,000 iterations',
         "prior='batch', use_vector=False and lam1=lam2=0, by --cfg-options"),
        ('figure3', 'densities of the simulated scores', 'missing'),
        ('figure4', 'errors of the estimates, all distributions', 'here',
         SIMULATION),
        ('figure5', 'errors of interpolation', 'here', SIMULATION),
        *(
            (f'table{i}', f'{data}, {split} split', 'data',
             f'{TRAIN}soprc/r50_soprc_56x4-{config}.py',
             f'{data}; ten trainings' if split == 'train' else
             f'{data}; six trainings',
             '' if split == 'train' else _TRAINVAL)
            for i, data, split, config in (
                (3, 'Stanford Online Products', 'train', '50k_sop'),
                (4, 'Stanford Online Products', 'trainval', '50k_sop'),
                (5, 'iNaturalist-2018', 'train', '130k_inaturalist'),
                (6, 'iNaturalist-2018', 'trainval', '130k_inaturalist'),
                (7, 'PKU VehicleID', 'train', '100k_vehicleid'),
                (8, 'PKU VehicleID', 'trainval', '100k_vehicleid'),
            )
        ),
        ('figure6', 'precision-recall, all data', 'data',
         f'{TRAIN}soprc/r50_soprc_56x4-50k_sop.py',
         f'{RETRIEVAL}; {_SOPRC_BUDGET}',
         'then tools/analysis_tools/retrieval_report.py'),
        ('figure7', 'convergence, all data', 'data',
         f'{TRAIN}soprc/r50_soprc_56x4-50k_sop.py',
         f'{RETRIEVAL}; {_SOPRC_BUDGET}',
         'then tools/analysis_tools/training_curves.py'),
    ),
    *_of(
        'isogclr',
        ('figure1', 'frequent and rare images, convergence on CC3M', 'data',
         f'{TRAIN}clip/r50-distilbert_isogclr_2xb256-30e_cc3m.py',
         'CC3M; 30 epochs', 'then tools/analysis_tools/temperatures.py'),
        ('figure2', 'contours of the loss of two negatives', 'missing'),
        ('table1', 'linear evaluation, 400 epochs', 'small', CIFAR_VIEWS,
         'data/cifar10_16', 'CIFAR-10-LT at 16 x 16, 12 epochs'),
        ('figure3', 'optimal weights of two images', 'missing'),
        ('table2', 'retrieval and zero-shot after CC3M', 'small', CAPTIONS,
         'data/cifar10_16', 'CIFAR-10 with made-up captions'),
        ('figure4', 't-SNE of CIFAR-10', 'missing'),
        ('figure5', 'classes of large and small temperatures', 'small',
         f'{SEEDS}isogclr/cifar10-lt_orders.yaml', 'data/cifar10_16',
         'then tools/analysis_tools/temperatures.py and '
         'temperature_orders.py; without t-SNE'),
        ('figure6', 'hard negatives and t-SNE on CC3M', 'missing'),
        ('figure7', 'effect of tau and tau_init', 'data',
         f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10.py',
         'CIFAR; 400 epochs a training',
         'model.loss.tau_init by --cfg-options'),
        ('figure8', 'distributions of the temperatures', 'small',
         CIFAR_VIEWS, 'data/cifar10_16',
         'then tools/analysis_tools/temperatures.py'),
        ('table3', 'balanced sets, 200 to 800 epochs', 'data',
         f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10.py',
         'CIFAR, ImageNet-100; 400 and 800 epochs a training'),
        ('table4', 'imbalanced sets, 200 to 800 epochs', 'data',
         f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10-lt.py',
         'CIFAR, iNaturalist-2018; 400 and 800 epochs a training'),
        *(
            (name, title, 'data',
             f'{TRAIN}clip/r50-distilbert_isogclr_2xb256-30e_cc3m.py',
             f'CC3M, {data}; 30 epochs a training')
            for name, title, data in (
                ('table5', 'retrieval on Flickr30K', 'Flickr30K'),
                ('table6', 'retrieval on MSCOCO', 'MSCOCO'),
                ('table7', 'zero-shot classification', 'CIFAR, ImageNet'),
            )
        ),
        ('table8', 'tau and tau_init', 'data',
         f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10.py',
         'CIFAR, ImageNet-100, iNaturalist-2018; 400 epochs a training',
         'model.loss.tau and tau_init by --cfg-options'),
        ('table9', 'rho', 'data',
         f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10.py',
         'CIFAR, ImageNet-100, iNaturalist-2018; 400 epochs a training',
         'model.loss.rho by --cfg-options'),
        ('table10', 'TaU + SimCLR', 'data',
         f'{TRAIN}isogclr/r18_simclr_128-400e_cifar10.py',
         'CIFAR; 400 epochs a training',
         "a config that sets model.loss to mmrank.TaUSimCLRLoss, and one "
         'more output of the neck'),
        ('figure9', 'temperatures from several tau_init', 'data',
         f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10.py',
         'CIFAR, ImageNet-100, iNaturalist-2018, CC3M',
         'then tools/analysis_tools/temperatures.py'),
        ('figure10', 'images of large temperatures, CC3M', 'data',
         f'{TRAIN}clip/r50-distilbert_isogclr_2xb256-30e_cc3m.py',
         'CC3M; 30 epochs', 'then tools/analysis_tools/temperatures.py'),
        ('figure11', 'images of small temperatures, CC3M', 'data',
         f'{TRAIN}clip/r50-distilbert_isogclr_2xb256-30e_cc3m.py',
         'CC3M; 30 epochs', 'then tools/analysis_tools/temperatures.py'),
    ),
    *_of(
        'in_batch',
        ('figure1', 'two-tower model', 'out'),
        ('figure2', 'three samplings', 'out'),
        ('table1', 'batch losses and their expected objectives', 'here',
         '-m pytest tests/test_functional/test_in_batch/'
         'test_in_batch_loss.py', '',
         'every batch of a small matrix is enumerated'),
        ('figure3', 'precision at 5 against the batch ratio', 'small',
         IN_BATCH, 'data/ml-1m', 'see configs/in_batch/README.md'),
        ('table2', 'notation', 'out'),
        ('table3', 'sizes of the data sets', 'missing'),
        ('table4', 'best precision at 5', 'small', IN_BATCH, 'data/ml-1m',
         'see configs/in_batch/README.md; EUR-Lex by its config'),
        ('figure4', 'objective against step, Sogram and unbiased',
         'missing'),
        ('table5', 'stochastic gradient, all metrics', 'small', IN_BATCH,
         'data/ml-1m', 'see configs/in_batch/README.md'),
        ('table6', 'full gradient, all metrics', 'small', IN_BATCH,
         'data/ml-1m', 'see configs/in_batch/README.md'),
    ),
]  # fmt: skip


def table_named(name: str) -> PaperTable:
    """The table of a name.

    Raises:
        KeyError: If there is none.
    """
    return {table.name: table for table in TABLES}[name]
