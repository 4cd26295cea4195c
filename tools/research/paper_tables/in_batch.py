"""Rows of "Examining the Bias of In-Batch Sampling"."""

from research.paper_tables.entry import PAGE, PaperTable, of_paper

_CONFIG = 'configs/in_batch/two-tower64_unbiased-logistic_ml-1m.py'
_TABLE = f'tools/benchmarks/in_batch_table.py {_CONFIG} --divergence 1.3'
#: The paper's own limits take days; those are of configs/in_batch/README.md.
_SAMPLED = (
    f'{_TABLE} --checks-per-epoch 1 --no-full --pointwise square '
    '--first-exponent 3 --max-steps 632 300 155 100 75',
    f'{_TABLE} --checks-per-epoch 1 --no-full --pointwise logistic '
    '--first-exponent 0 --max-steps 316 160 90 60 60',
)
_FULL = tuple(
    f'{_TABLE} --modes --ratios 1e-5 1e-3 1e-1 --pointwise {name} --max-iterations {limit}'
    for name, limit in (('square', 80), ('logistic', 40))
)
_RESULTS = 'configs/in_batch/README.md'
_LIMITS = 'fewer steps than in the paper: see configs/in_batch/README.md'
_OBJECTIVE = 'tools/benchmarks/in_batch_objective.py'

TABLES = of_paper(
    'in_batch',
    PaperTable('figure1', 'two-tower model', 'out'),
    PaperTable('figure2', 'three samplings', 'out'),
    PaperTable(
        'table1',
        'batch losses and their expected objectives',
        'here',
        ('-m pytest -o addopts= -q tests/test_functional/test_in_batch/test_in_batch_loss.py',),
        '',
        'every batch of a small matrix is enumerated',
        results=PAGE,
    ),
    PaperTable(
        'figure3',
        'precision at 5 against the batch ratio',
        'small',
        _SAMPLED,
        'data/ml1m',
        _LIMITS,
        _RESULTS,
    ),
    PaperTable('table2', 'notation', 'out'),
    PaperTable(
        'table3',
        'sizes of the data sets',
        'small',
        (f'{_OBJECTIVE} {_CONFIG} --sizes',),
        'data/ml1m',
        'MovieLens-1M with every rating a positive; EUR-Lex by '
        'configs/in_batch/two-tower64_unbiased-logistic_eurlex.py',
        results=PAGE,
    ),
    PaperTable(
        'table4',
        'best precision at 5',
        'small',
        _SAMPLED,
        'data/ml1m',
        f'{_LIMITS}; EUR-Lex by its config',
        _RESULTS,
    ),
    PaperTable(
        'figure4',
        'objective against step, Sogram and unbiased',
        'small',
        (f'{_OBJECTIVE} {_CONFIG}',),
        'data/ml1m',
        'MovieLens-1M with every rating a positive; EUR-Lex by '
        'configs/in_batch/two-tower64_unbiased-logistic_eurlex.py',
        results=PAGE,
    ),
    PaperTable(
        'appendixF1',
        'cost of a step, unbiased and in-batch',
        'here',
        ('tools/benchmarks/in_batch_speed.py --threads 1',),
        '',
        'made-up pairs of the size of MovieLens-1M',
        results=PAGE,
    ),
    PaperTable(
        'table5',
        'stochastic gradient, all metrics',
        'small',
        _SAMPLED,
        'data/ml1m',
        _LIMITS,
        _RESULTS,
    ),
    PaperTable(
        'table6', 'full gradient, all metrics', 'small', _FULL, 'data/ml1m', _LIMITS, _RESULTS
    ),
)
