"""Every page takes the loss first that the claims name."""

import re
import statistics

from published_configs import ROOT

from mmrank.experiments.records import read_final_rows

#: The recommended loss of a detector, in records and in configs.
RECORDED = 'graded AP-Loss'
NAMED = 'GradedAPLoss'
CLAIMS = sorted((ROOT / 'tools/research/records').glob('dense_claim_*.csv'))


def test_the_claims_name_it():
    """Of the losses in their best form on each set, none has a higher mean over the sets."""
    assert CLAIMS
    means = {}
    for path in CLAIMS:
        rows = read_final_rows(path)
        assert all(int(row['seed']) >= 100 for row in rows), path.name
        for method in {row['method'] for row in rows}:
            values = [float(row['mAP']) for row in rows if row['method'] == method]
            name = re.sub(r', (weight [\d.]+|balanced)$', '', method)
            best = means.setdefault(name, {})
            best[path.stem] = max(best.get(path.stem, 0.0), statistics.mean(values))
    overall = {name: statistics.mean(best.values()) for name, best in means.items()}
    assert max(overall, key=overall.get) == RECORDED


def test_the_table_of_losses_names_it():
    text = (ROOT / 'docs/pages/losses.md').read_text('utf-8')
    rows = [line for line in text.splitlines() if re.match(r'\| a \S+ detector ', line)]
    assert len(rows) == 2  # a DETR has a row of its own, and its own loss
    for row in rows:
        assert row.split('|')[2].strip().startswith(f'`{NAMED}`')
