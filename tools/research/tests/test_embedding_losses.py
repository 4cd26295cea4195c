"""The comparison of losses of image search trains, is recorded, and keeps its classes apart."""

import csv

import torch
import yaml

import embedding_losses as study

STABLE_AP = dict(type='mmrank.StableAPLoss')
TRIPLET = dict(type='mmrank.PMLLoss', loss=dict(type='TripletMarginLoss', margin=0.1))
PLAN = dict(
    seeds=[100, 101],
    iterations=3,
    common=dict(rate=0.003),
    watch=[1, 3],
    methods=[
        dict(name='ours', loss=STABLE_AP, memory=60),
        dict(name='triplet', loss=TRIPLET, batch=[5, 3], sets=['made_up']),
        dict(name='elsewhere', loss=STABLE_AP, sets=['none']),
    ],
)


def _labels():
    classes = torch.arange(32).repeat_interleave(6)
    return torch.stack([classes, classes // 4], 1)


def test_a_plan_is_recorded_and_goes_on(tmp_path):
    part = dict(features=torch.randn(192, 2, 16), labels=_labels())
    torch.save(dict(train=part, test=part), tmp_path / 'features.pt')
    plan = tmp_path / 'plan.yaml'
    data = dict(made_up=dict(file=str(tmp_path / 'features.pt'), apart=1))
    plan.write_text(yaml.safe_dump(PLAN | dict(data=data, seeds=[100])))
    study.run(plan, tmp_path)
    before = (tmp_path / 'plan_made_up.csv').read_text()
    plan.write_text(yaml.safe_dump(PLAN | dict(data=data)))
    study.run(plan, tmp_path)
    found = (tmp_path / 'plan_made_up.csv').read_text()
    assert found.startswith(before)
    rows = list(csv.DictReader(found.splitlines()))
    assert [(x['method'], x['seed'], x['step']) for x in rows] == [
        (name, seed, step)
        for seed in ('100', '101')
        for name in ('ours', 'triplet')
        for step in '13'
    ]
    for row in rows:
        assert row['stage'] == 'final'
        assert all(0 <= float(row[x]) <= 1 for x in (*study.FIGURES, *study.CAUSES[:3]))


def test_trials_choose_the_loss_that_is_claimed(tmp_path, monkeypatch):
    part = dict(features=torch.randn(192, 2, 16), labels=_labels())
    torch.save(dict(train=part, test=part), tmp_path / 'features.pt')
    plan = dict(
        data=dict(made_up=dict(file=str(tmp_path / 'features.pt'), apart=1)),
        seeds=[100],
        iterations=2,
        tune=dict(seeds=[0], grid=dict(rate=[0.0, 0.01])),
        methods=[dict(name='ours', tune=dict(loss=[STABLE_AP, TRIPLET]))],
    )
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan))
    classes = []
    split = study.split_classes

    def keep(labels, apart, is_claim, seed):
        classes.append((is_claim, seed))
        return split(labels, apart, is_claim, seed)

    monkeypatch.setattr(study, 'split_classes', keep)
    study.run(tmp_path / 'plan.yaml', tmp_path)
    rows = list(csv.DictReader((tmp_path / 'plan_made_up.csv').read_text().splitlines()))
    assert [x['stage'] for x in rows] == ['tune'] * 4 + ['final']
    assert classes == [(False, 0), (True, 100)]
    best = max(rows[:4], key=lambda x: float(x['mAP']))
    assert rows[4]['settings'] == best['settings']


def test_levels_proxies_and_settings_that_change(tmp_path, monkeypatch):
    part = dict(features=torch.randn(192, 2, 16), labels=_labels())
    torch.save(dict(train=part, test=part), tmp_path / 'features.pt')
    proxies = dict(type='ProxyAnchorLoss', num_classes=1, embedding_size=study.LENGTH)
    proxies = dict(type='mmrank.PMLLoss', loss=proxies)
    methods = [
        dict(name='levels', loss=dict(type='mmrank.HAPLoss'), levels=True),
        dict(name='narrower', loss=STABLE_AP, anneal=dict(tau=[0.8, 0.1])),
        dict(
            name='mixed',
            loss=dict(type='mmrank.SumLoss', losses=[STABLE_AP, proxies]),
            anneal=dict(weights=[[0.1, 0.9], [0.9, 0.1]]),
        ),
    ]
    plan = PLAN | dict(methods=methods, seeds=[100], iterations=10, level_figures=True)
    del plan['watch']
    plan['data'] = dict(made_up=dict(file=str(tmp_path / 'features.pt'), apart=1))
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan))
    used = []
    build = study.build_loss

    def keep(*args):
        used.append(args[1])
        return build(*args)

    monkeypatch.setattr(study, 'build_loss', keep)
    study.run(tmp_path / 'plan.yaml', tmp_path)
    rows = list(csv.DictReader((tmp_path / 'plan_made_up.csv').read_text().splitlines()))
    assert [x['method'] for x in rows] == ['levels', 'narrower', 'mixed']
    assert all(0 < float(x[name]) < 1 for x in rows for name in study.LEVEL_FIGURES)
    # Both annealed losses are built at first, at step 5 and at step 10.
    widths = [x['tau'] for x in used if 'tau' in x]
    torch.testing.assert_close(widths, [0.8, (0.8 * 0.1) ** 0.5, 0.1])
    weights = [x['weights'] for x in used if 'weights' in x]
    torch.testing.assert_close(weights, [[0.1, 0.9], [0.3, 0.3], [0.9, 0.1]])


def test_symbols_are_drawn_by_several_houses(tmp_path, monkeypatch):
    (tmp_path / 'labels.csv').write_text('name,subgroup\ncat,animals\ndog,animals\ntea,drinks\n')
    for house in ('one', 'two'):
        (tmp_path / house).mkdir()
        for number, name in enumerate(('cat', 'dog', 'tea')):
            study.Image.new('RGB', (8, 8), (number, 0, 0)).save(tmp_path / house / f'{name}.png')
    monkeypatch.setattr(study, 'efficientnet', lambda: lambda x: (None, x))
    study.symbol_features(tmp_path, tmp_path / 'out.pt')
    stored = torch.load(tmp_path / 'out.pt', weights_only=True)
    assert stored['test']['labels'].tolist() == [[0, 0], [1, 0], [2, 1]] * 2
    assert stored['train']['features'].shape[:2] == (6, study.VIEWS)
    red = stored['test']['features'].view(6, 3, -1)[:, 0, 0]
    assert red.tolist() == [255, 254, 253] * 2


def test_classes_of_a_claim_choose_nothing():
    labels = _labels()
    chosen, claimed = set(), set()
    for apart in (0, 1):
        for seed in range(20):
            trained, tested = study.split_classes(labels, apart, False, seed)
            fresh, unseen = study.split_classes(labels, apart, True, seed)
            assert not {*trained.tolist()} & {*tested.tolist()}
            assert {*fresh.tolist()}.isdisjoint(unseen.tolist())
            chosen |= {(apart, x) for x in (*trained.tolist(), *tested.tolist())}
            claimed |= {(apart, x) for x in unseen.tolist()}
    assert not chosen & claimed
    assert len(chosen) == len(claimed) == 32


def test_a_pair_has_the_gradient_of_its_score():
    """Losses of distances and losses of scores: both by the chain rule of unit rows."""
    torch.manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(12, 4)).requires_grad_()
    labels = torch.arange(12) // 3
    for kind, power in (('FastAPLoss', 2), ('TripletMarginLoss', 1)):
        loss = study.build_loss('loss', dict(type='mmrank.PMLLoss', loss=dict(type=kind)))
        watched = []
        study.watch_distances(loss, watched)
        batch = study.WatchedBatch.of_one_batch(rows, labels)
        loss.embedding_loss(batch).backward()
        matrix, slope = watched[0]
        scores = batch.scores().detach().requires_grad_()
        distances = (2 - 2 * scores).clamp(min=1e-9) ** (power / 2)
        others = ~batch.is_itself
        torch.testing.assert_close(matrix[others], distances[others], rtol=1e-4, atol=1e-4)
        (want,) = torch.autograd.grad(distances, scores, matrix.grad)
        torch.testing.assert_close(
            (matrix.grad * slope)[others], want[others], rtol=1e-3, atol=1e-5
        )
