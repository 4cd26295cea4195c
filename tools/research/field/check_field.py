"""Check losses of other libraries with mmrank.testing; writes a table.

A library that is not installed is left out::

    python tools/research/field/check_field.py --out field

``plan.yaml`` beside this file says which losses, how they are called and what is known of them.
``losses.csv`` has a row a loss: its version and the number of checks by outcome.
"""

import dataclasses
import datetime
import functools
import importlib
import sys
from importlib import metadata
from pathlib import Path

import torch
import yaml
from torch.nn.functional import normalize, one_hot, pad

from mmrank.cli.options import tool_parser
from mmrank.files import write_csv_atomically
from mmrank.testing import CALLS, Call, check_loss

PLAN = Path(__file__).with_name('plan.yaml')


def with_float_labels(loss, scores, labels):
    return loss(scores, labels.to(scores))


def make_indexed_binary(size, seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randn(size, generator=g, dtype=torch.float64)
    labels = (torch.rand(size, generator=g) < 0.4).long()
    # LibAUC numbers the positives first.
    index = torch.randperm(16, generator=g)[:size]
    return [scores], [labels, torch.where(labels == 1, index, index + 16)]


def with_bias(loss, *tensors):
    x, y = map(normalize, tensors)
    return loss(x, y, torch.tensor(10.0, dtype=x.dtype), torch.tensor(-10.0, dtype=x.dtype))


def with_weights(loss, x, y):
    return loss(x, y.to(x), torch.ones_like(x))


def on(name: str, base: str, apply) -> Call:
    """A named call with another way to hand its tensors over."""
    return dataclasses.replace(CALLS[base], name=name, apply=apply)


OWN_CALLS = [
    on('float_labels', 'multi_label', with_float_labels),
    on('float_binary', 'binary', with_float_labels),
    on('probabilities', 'binary', lambda loss, x, y: loss(x.sigmoid(), y.to(x))),
    on('one_hot', 'scores', lambda loss, x, y: loss(x, one_hot(y.long(), 3).to(x))),
    on('lists_of_seven', 'lists', lambda loss, x, y: loss(x, y, torch.full((len(x),), 7)).mean()),
    on('channel_masks', 'masks', lambda loss, x, y: loss(x, y[:, None])),
    on('scores_and_background', 'scores', lambda loss, x, y: loss(pad(x, (0, 2)), y)),
    on(
        'scores_and_quality',
        'scores',
        lambda loss, x, y: loss(x, (y, torch.full_like(y, 0.7, dtype=x.dtype))),
    ),
    on('weighted_labels', 'multi_label', with_weights),
    on('weighted_numbers', 'numbers', with_weights),
    on('images_texts_with_bias', 'views', with_bias),
    # No batch has more classes than there are proxies, whose directions are random.
    dataclasses.replace(CALLS['embeddings'], name='proxies', no_positives=None, perfect=None),
    Call(
        'indexed_binary',
        make_indexed_binary,
        lambda loss, x, y, index: loss(x, y, index),
        lambda x, y: [torch.zeros_like(y[0]), *y[1:]],
        lambda x, y: [torch.ones_like(y[0]), *y[1:]],
    ),
    on(
        'indexed_unit_views',
        'indexed_views',
        lambda loss, x, y, index: loss(normalize(x), normalize(y), index),
    ),
]


def subjects(libraries: list[str]):
    """Losses of the libraries that are installed: name, version, loss, and what is known of it."""
    plan = yaml.safe_load(PLAN.read_text('utf-8'))
    calls = {x.name: x for x in OWN_CALLS}
    for row in plan['losses']:
        library = row['library']
        rule = row.get('rule', '')
        if libraries and library not in libraries:
            continue
        module, distribution = plan['libraries'][library]
        try:
            found = importlib.import_module(module)
        except Exception as error:  # Some break as they are imported.
            sys.stderr.write(f'{library}: {error!r}\n')
            continue
        not_promised = row.get('not_promised', {})
        if rule:
            not_promised = dict(second_derivative=rule) | not_promised
        known = dict(own_gradient=rule, not_promised=not_promised)
        known['dtype'] = getattr(torch, row.get('dtype', 'float64'))
        known['call'] = calls.get(row['call'], row['call'])
        for name in row['names'].split():
            if not hasattr(found, name):
                sys.stderr.write(f'{library} has no {name}\n')
                continue
            loss = functools.partial(getattr(found, name), **row.get('settings', {}))
            known['name'] = f'{library}.{name}'
            yield dict(library=library, version=metadata.version(distribution)), loss, known


def main() -> None:
    """Check, and write what was found."""
    parser = tool_parser(__doc__, out=(Path('field'), 'folder to write into'))
    parser.add_argument('--libraries', nargs='*', default=[], help='default: all in plan.yaml')
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for row, loss, known in subjects(args.libraries):
        report = check_loss(loss, **known)
        failed = [x.check for x in report.failures]
        name = known['name']
        row |= dict(loss=name.partition('.')[2], call=report.subject.call.name)
        row |= report.counts() | dict(failures=' '.join(failed))
        rows.append(row | dict(date=str(datetime.date.today())))
        print(f'{name}: {len(failed)} failed', flush=True)
        for failure in report.failures:
            print(f'    {failure.check}: {failure.message:.150}', flush=True)
        # After each loss, so that an interruption costs one.
        write_csv_atomically([rows[0], *(x.values() for x in rows)], args.out / 'losses.csv')


if __name__ == '__main__':
    main()
