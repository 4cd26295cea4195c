"""Rows of iSogCLR (ICML 2023)."""

from research.paper_tables.entry import PAGE, PaperTable, of_paper
from research.paper_tables.gpu_hours import Training, epochs
from research.paper_tables.starting_points import MAP, SEEDS, TRAIN

_R18 = 'two-view ResNet-18, 224 px'
_R50 = 'two-view ResNet-50, 224 px'
_BIMODAL = 'ResNet-50, 256 px, and DistilBERT'
#: Training images and network of each data set.
_DATA = {
    'CIFAR-10': (50_000, _R18),
    'CIFAR-100': (50_000, _R18),
    'ImageNet-100': (128_000, _R50),
    'CIFAR-10-LT': (12_406, _R18),
    'CIFAR-100-LT': (10_847, _R18),
    'iNaturalist-2018': (437_513, _R50),
}
_CIFAR = [name for name in _DATA if 'CIFAR' in name]
_EVERY_DATA = 'CIFAR, ImageNet-100, iNaturalist-2018'
_ISOGCLR = f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10.py'
_CC3M = f'{TRAIN}clip/r50-distilbert_isogclr_2xb256-30e_cc3m.py'
_CC3M_IMAGES = epochs(2_900_000, 30)
#: CLIP, CyCLIP, SogCLR and iSogCLR, three seeds each.
_BIMODAL_METHODS = (Training(_CC3M_IMAGES, _BIMODAL, 12),)
_ONE_BIMODAL = (Training(_CC3M_IMAGES, _BIMODAL),)

_VIEWS = f'{SEEDS}isogclr/cifar10-lt_contrastive.yaml'
_ABLATION = f'{SEEDS}isogclr/cifar10-lt_ablation.yaml --forked'
_RESULTS = 'configs/isogclr/README.md'


def _pretrainings(
    count: int, data: tuple[str, ...] | list[str], number: int = 400
) -> tuple[Training, ...]:
    """Trainings of so many epochs on each data set."""
    return tuple(Training(epochs(_DATA[name][0], number), _DATA[name][1], count) for name in data)


def _views_run(method: str) -> str:
    return f'{method}=configs/isogclr/conv3_{method}_cifar10-lt.py,work_dirs/cifar10-lt_contrastive/final/{method}/seed_0-*/epoch_*.pth'  # noqa: E501


TABLES = of_paper(
    'isogclr',
    PaperTable(
        'figure1',
        'frequent and rare images, convergence on CC3M',
        'data',
        (_CC3M,),
        'CC3M',
        'then tools/analysis_tools/temperatures.py',
        trainings=(Training(_CC3M_IMAGES, _BIMODAL, 4),),
    ),
    PaperTable(
        'figure2',
        'contours of the loss of two negatives',
        'here',
        ('tools/analysis_tools/isogclr_weights.py',),
        results=PAGE,
    ),
    PaperTable(
        'table1',
        'linear evaluation, 400 epochs',
        'small',
        (_VIEWS,),
        'data/cifar10_16',
        'CIFAR-10-LT at 16 x 16, 12 epochs; SimCLR, SogCLR and iSogCLR of eight methods; the '
        'published sets take r18_*_128-400e_*.py and r50_*_256-400e_*.py',
        _RESULTS,
        _pretrainings(9, list(_DATA)),
    ),
    PaperTable(
        'figure3',
        'optimal weights of the negatives of two images',
        'ready',
        (
            _VIEWS,
            f'{MAP}work_dirs/isogclr_figure4/map.png ' + _views_run('isogclr'),
            'tools/analysis_tools/isogclr_weights.py --features '
            'work_dirs/isogclr_figure4/features/isogclr-*.npz',
        ),
        'data/cifar10_16',
        'images of CIFAR-10; the paper shows two of CC3M',
        trainings=_ONE_BIMODAL,
    ),
    PaperTable(
        'table2',
        'retrieval and zero-shot after CC3M',
        'small',
        (f'{SEEDS}clip/caption_losses.yaml',),
        'data/cifar10_16',
        'CIFAR-10 with made-up captions; the published set takes '
        'configs/clip/r50-distilbert_*_cc3m.py',
        'configs/clip/README.md',
        _BIMODAL_METHODS,
    ),
    PaperTable(
        'figure4',
        't-SNE of CIFAR-10',
        'ready',
        (
            _VIEWS,
            f'{MAP}work_dirs/isogclr_figure4/map.png '
            + ' '.join(map(_views_run, ('simclr', 'sogclr', 'isogclr'))),
        ),
        'data/cifar10_16',
        'CIFAR-10-LT at 16 x 16, 12 epochs',
        trainings=_pretrainings(3, ['CIFAR-10']),
    ),
    PaperTable(
        'figure5',
        'classes of large and small temperatures',
        'small',
        (f'{SEEDS}isogclr/cifar10-lt_orders.yaml',),
        'data/cifar10_16',
        'then tools/analysis_tools/temperatures.py and '
        'temperature_orders.py; the map is that of figure4',
        _RESULTS,
        _pretrainings(1, ['CIFAR-100-LT']),
    ),
    PaperTable(
        'figure6',
        'hard negatives and t-SNE on CC3M',
        'data',
        (_CC3M,),
        'CC3M',
        'then tools/analysis_tools/temperatures.py, and '
        'tools/analysis_tools/embedding_map.py on features of the test',
        trainings=_ONE_BIMODAL,
    ),
    PaperTable(
        'figure7',
        'effect of tau and tau_init',
        'ready',
        (_ABLATION,),
        'data/cifar10_16',
        'CIFAR-10-LT at 16 x 16, 12 epochs; the published set takes '
        'configs/isogclr/r18_isogclr_128-400e_cifar10.py with model.loss.tau_init by --cfg-options',
        trainings=_pretrainings(8, ['CIFAR-10']),
    ),
    PaperTable(
        'figure8',
        'distributions of the temperatures',
        'small',
        (_VIEWS,),
        'data/cifar10_16',
        'then tools/analysis_tools/temperatures.py',
        _RESULTS,
        (*_pretrainings(1, list(_DATA)), *_ONE_BIMODAL),
    ),
    PaperTable(
        'table3',
        'balanced sets, 200 to 800 epochs',
        'data',
        (_ISOGCLR,),
        'CIFAR, ImageNet-100',
        'SimCLR, SogCLR and iSogCLR of eight methods, three seeds',
        trainings=(
            *_pretrainings(9, ['CIFAR-10', 'CIFAR-100', 'ImageNet-100']),
            *_pretrainings(9, ['CIFAR-10', 'CIFAR-100'], 800),
            *_pretrainings(9, ['ImageNet-100'], 200),
        ),
    ),
    PaperTable(
        'table4',
        'imbalanced sets, 200 to 800 epochs',
        'data',
        (f'{TRAIN}isogclr/r18_isogclr_128-400e_cifar10-lt.py',),
        'CIFAR, iNaturalist-2018',
        'SimCLR, SogCLR and iSogCLR of eight methods, three seeds',
        trainings=(
            *_pretrainings(9, ['CIFAR-10-LT', 'CIFAR-100-LT', 'iNaturalist-2018']),
            *_pretrainings(9, ['CIFAR-10-LT', 'CIFAR-100-LT'], 800),
            *_pretrainings(9, ['iNaturalist-2018'], 200),
        ),
    ),
    *(
        PaperTable(
            name,
            title,
            'data',
            (_CC3M,),
            f'CC3M, {data}',
            'one set of trainings for tables 2, 5, 6 and 7',
            trainings=_BIMODAL_METHODS,
        )
        for name, title, data in (
            ('table5', 'retrieval on Flickr30K', 'Flickr30K'),
            ('table6', 'retrieval on MSCOCO', 'MSCOCO'),
            ('table7', 'zero-shot classification', 'CIFAR, ImageNet'),
        )
    ),
    PaperTable(
        'table8',
        'tau and tau_init',
        'ready',
        (_ABLATION,),
        'data/cifar10_16',
        'CIFAR-10-LT at 16 x 16, 12 epochs; the published sets (CIFAR, ImageNet-100) take '
        'r18_*_128-400e_*.py and r50_*_256-400e_imagenet100.py with model.loss.tau and tau_init',
        trainings=_pretrainings(8, ['CIFAR-10', 'CIFAR-100', 'ImageNet-100']),
    ),
    PaperTable(
        'table9',
        'rho',
        'ready',
        (_ABLATION,),
        'data/cifar10_16',
        f'CIFAR-10-LT at 16 x 16, 12 epochs; the published sets ({_EVERY_DATA}'
        ') take r18_isogclr_*.py and r50_isogclr_*.py with model.loss.rho',
        trainings=_pretrainings(4, list(_DATA)),
    ),
    PaperTable(
        'table10',
        'TaU + SimCLR',
        'ready',
        (_ABLATION,),
        'data/cifar10_16',
        'CIFAR-10-LT at 16 x 16, 12 epochs; the published sets take r18_simclr_128-400e_*.py with '
        'the loss and the neck of tau_simclr in configs/isogclr/cifar10-lt_ablation.yaml',
        trainings=_pretrainings(2, _CIFAR),
    ),
    PaperTable(
        'figure9',
        'temperatures from several tau_init',
        'data',
        (_ISOGCLR,),
        f'{_EVERY_DATA}, CC3M',
        'then tools/analysis_tools/temperatures.py; the trainings of table8 '
        'have such checkpoints of CIFAR-10-LT',
        trainings=(*_pretrainings(4, list(_DATA)), Training(_CC3M_IMAGES, _BIMODAL, 4)),
    ),
    *(
        PaperTable(
            name,
            f'images of {size} temperatures, CC3M',
            'data',
            (_CC3M,),
            'CC3M',
            'then tools/analysis_tools/temperatures.py',
            trainings=_ONE_BIMODAL,
        )
        for name, size in (('figure10', 'large'), ('figure11', 'small'))
    ),
)
