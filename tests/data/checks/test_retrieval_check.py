"""The check of retrieval data sets: what it must find, and what not."""

import pytest
from labelled import LabelledItems
from mmengine.config import Config
from mmengine.structures import BaseDataElement

from make_glyphs import write_glyphs
from mmrank.datasets.checks.retrieval_check import check_config, inspect_config
from mmrank.errors import UserError
from mmrank.registry import DATASETS

pytest.importorskip('mmpretrain')


@pytest.fixture
def glyphs(tmp_path):
    write_glyphs(tmp_path / 'glyphs', 6, 3, size=8)
    return tmp_path / 'glyphs'


def folder(root, **options):
    return dict(type='mmrank.ClassFolder', data_root=str(root), **options)


def config(train, **others):
    loaders = {'train': train, **others}
    return Config({f'{s}_dataloader': dict(dataset=d) for s, d in loaders.items()})


def kinds(report):
    return {p.kind: (p.is_error, p.count) for p in report.problems}


def test_good_data_has_no_problem(glyphs):
    options = dict(test_fraction=0.5, val_fraction=0.34)
    cfg = config(
        folder(glyphs, split='train', **options),
        val=folder(glyphs, split='val', **options),
        test=folder(glyphs, split='test', **options),
    )
    reports = inspect_config(cfg, read_images=True)
    assert [r.problems for r in reports] == [[], [], []]
    assert [len(r.counts) for r in reports] == [2, 1, 3]
    check_config(cfg)


def test_damaged_folders(glyphs):
    (glyphs / 'glyph_0' / '0.png').write_bytes(b'no image')
    (glyphs / 'glyph_1' / '0.png').unlink()
    (glyphs / 'glyph_1' / '1.png').unlink()
    for path in (glyphs / 'glyph_2').iterdir():
        path.unlink()
    (glyphs / '.hidden').mkdir()
    (glyphs / '.hidden' / '0.png').write_bytes(b'')
    (report,) = inspect_config(config(folder(glyphs)), read_images=True)
    assert kinds(report) == {
        'image that cannot be decoded': (True, 1),
        'class with a single image': (False, 1),
        'class without image': (False, 1),
    }
    texts = [p.examples[0] for p in report.problems]
    assert any('glyph_0/0.png' in text for text in texts)
    assert any("'glyph_1'" in text for text in texts)
    assert any('folder glyph_2' in text for text in texts)


def test_damaged_lists(glyphs):
    (glyphs / 'list.txt').write_text(
        'glyph_0/0.png a\n'
        'glyph_0/0.png a\n'
        './glyph_0/1.png b\n'
        'glyph_0/1.png c\n'
        'glyph_9/1.png c\n'
        'glyph_1/nothing.png c\n'
    )
    cfg = config(folder(glyphs, ann_file='list.txt'))
    (report,) = inspect_config(cfg)
    assert kinds(report) == {
        'class with a single image': (False, 1),
        'image of several classes': (True, 1),
        'image listed twice': (True, 1),
        'image file missing': (True, 2),
    }
    with pytest.raises(UserError) as caught:
        check_config(cfg)
    assert 'glyph_1/nothing.png' in str(caught.value)
    assert "['b', 'c']" in str(caught.value)
    assert 'single image' not in str(caught.value)

    (glyphs / 'list.txt').write_text('glyph_0/0.png a\na b c d\n')
    with pytest.raises(UserError, match=r'list\.txt:2: .a b c d.'):
        check_config(cfg)


def test_overlap_of_splits(glyphs, tmp_path):
    same = folder(glyphs)
    _, val, test = inspect_config(config(same, val=same, test=same))
    kind = 'image that is trained on as well'
    assert kinds(val) == {kind: (False, 18)}
    assert kinds(test) == {kind: (True, 18)}
    assert 'is also in train_dataloader' in test.describe(test.errors)
    write_glyphs(tmp_path / 'other', 2, 3, size=8)
    _, test = inspect_config(config(same, test=folder(tmp_path / 'other')))
    assert kinds(test) == {'class that is trained on as well': (False, 2)}


def test_missing_test_split_does_not_stop_training(glyphs, tmp_path):
    cfg = config(folder(glyphs), test=folder(tmp_path / 'absent'))
    check_config(cfg)
    with pytest.raises(UserError, match='absent'):
        check_config(cfg, splits=('test',))
    cfg = config(folder(tmp_path / 'absent'))
    with pytest.raises(UserError, match=r'train_dataloader\.dataset'):
        check_config(cfg)
    cfg = config(folder(glyphs, split='query'))
    with pytest.raises(UserError, match=r"train_.*: split='query' is unknown"):
        check_config(cfg)


def test_wrappers_and_other_data_sets(glyphs):
    wrapped = dict(
        type='ConcatDataset',
        datasets=[
            dict(type='RepeatDataset', times=2, dataset=folder(glyphs)),
            dict(type='CIFAR10', data_root='nowhere'),
        ],
    )
    (report,) = inspect_config(config(wrapped))
    assert report.where == 'train_dataloader.dataset.datasets.0.dataset'
    assert inspect_config(config(dict(type='mmdet.CocoDataset'))) == []


CHECK = 'dataset_converters/check_retrieval'


def test_tool_on_a_config_and_a_folder(glyphs, tmp_path, run):
    path = tmp_path / 'config.py'
    path.write_text(f'train_dataloader = dict(dataset={folder(glyphs)!r})\n')
    assert 'No problem found' in run(CHECK, path)
    path.write_text('model = dict()\n')
    run(CHECK, path, status=2)
    (glyphs / 'glyph_3' / '0.png').write_bytes(b'no image')
    assert 'decoded' in run(CHECK, glyphs, '--read-images', status=1)


def test_training_tool_checks_retrieval_data(glyphs, tmp_path, run):
    path = tmp_path / 'config.py'
    (glyphs / 'list.txt').write_text('gone/0.png a\ngone/1.png a\n')
    dataset = folder(glyphs, ann_file='list.txt')
    path.write_text(
        f'train_dataloader = dict(batch_size=2, dataset={dataset!r},\n'
        "    sampler=dict(type='DefaultSampler'))\n"
        "model = dict(type='A')\ntrain_cfg = dict(by_epoch=True)\n"
        "optim_wrapper = dict(type='B')\ndefault_scope = 'mmpretrain'\n"
    )
    said = run('train', path, '--work-dir', tmp_path / 'run', status=2)
    assert 'image file missing (2 found)' in said


def test_every_sample_has_its_own_index():
    parts = [LabelledItems([dict(number=i) for i in numbers]) for numbers in ([0, 1, 2], [10, 11])]
    whole = DATASETS.build(dict(type='mmrank.IndexedConcatDataset', datasets=parts))
    assert len(whole) == 5
    for i in range(5):
        for item in (whole[i], whole.get_data_info(i)):
            assert (item['sample_idx'], item['dataset_idx']) == (i, i // 3)
            assert item['number'] == i % 3 + 10 * (i // 3)

    def packed(info):
        sample = BaseDataElement(metainfo=dict(sample_idx=info['sample_idx']))
        return dict(inputs=info['number'], data_samples=sample)

    for part in whole.datasets:
        part.pipeline = packed
    samples = [whole[i]['data_samples'] for i in range(5)]
    assert [x.sample_idx for x in samples] == [0, 1, 2, 3, 4]
    assert [x.dataset_idx for x in samples] == [0, 0, 0, 1, 1]
    assert whole[-1]['data_samples'].sample_idx == 4
