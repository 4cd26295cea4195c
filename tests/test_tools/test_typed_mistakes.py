"""A hundred mistakes of a user: one message that names the field, the value and the fix."""

import http.server
import json
import re
import sys
import threading
from pathlib import Path

import pytest
import torch
from data_mistakes import DATA_MISTAKES, write_data_mistakes
from more_mistakes import MORE_MISTAKES, write_files
from noisy_boxes import make_predictions

from mmrank.apis.synthetic.shapes_coco import ShapesSpec, write_shapes_coco

ROOT = Path(__file__).parents[2]
MINI = """\
default_scope = 'mmengine'
custom_imports = dict(imports=['tiny_model'])
model = dict(type='TinyModel')
work_dir = 'out'
train_dataloader = dict(dataset=dict(type='TinyData'), batch_size=2,
                        sampler=dict(type='DefaultSampler', shuffle=False))
train_cfg = dict(by_epoch=True, max_epochs=1)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
default_hooks = dict(logger=dict(type='LoggerHook', interval=100),
                     checkpoint=dict(type='CheckpointHook'))
"""
MODULE = """\
import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS

@MODELS.register_module(force=True)
class TinyModel(BaseModel):
    def __init__(self, frozen=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1), requires_grad=not frozen)
    def forward(self, inputs, mode):
        if mode == 'predict':
            return inputs
        return dict(loss=(self.weight * torch.stack(inputs)).square().sum())

@DATASETS.register_module(force=True)
class TinyData(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return dict(inputs=torch.ones(1) * i)

@METRICS.register_module(force=True)
class TinyMetric(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results.append(1)
    def compute_metrics(self, results):
        return dict(score=1)

@METRICS.register_module(force=True)
class FullDisk(TinyMetric):
    def compute_metrics(self, results):
        with open('kept.json', 'w') as file:
            raise OSError(28, 'No space left on device')
"""
TESTED = """\
test_dataloader = val_dataloader = dict(
    dataset=dict(type='TinyData'), sampler=dict(type='DefaultSampler', shuffle=False))
test_evaluator = val_evaluator = dict(type='TinyMetric')
test_cfg = val_cfg = dict()
"""
DETECTOR = """\
_base_ = {base!r}
model = dict(
    backbone=dict(base_channels=8),
    neck=dict(in_channels=[8, 16, 32, 64], out_channels=8),
    bbox_head=dict(num_classes=3, in_channels=8, feat_channels=8))
classes = ('disk', 'square', 'triangle')
train_dataloader = dict(batch_size=2, num_workers=0, dataset=dict(
    data_root={root!r}, metainfo=dict(classes=classes)))
test_dataloader = val_dataloader = dict(num_workers=0, dataset=dict(
    data_root={root!r}, metainfo=dict(classes=classes),
    ann_file='annotations/val.json', data_prefix=dict(img='val/')))
test_evaluator = val_evaluator = dict(ann_file={root!r} + '/annotations/val.json')
train_cfg = dict(max_epochs=1)
work_dir = 'out'
"""

#: What is typed, and words of the message. Without a tool: a change of the config MINI.
MISTAKES = [
    ('modle.head.tau=1', "no 'modle'", 'Fix: model'),
    ('optim_wrapper.optimiser.lr=1', "'optim_wrapper.optimiser'", 'Fix: optim_wrapper.optimizer'),
    ('lr=0.1', "no 'lr'"),
    ('optim_wrapper.optimizer.lr', 'has no value', 'Fix: KEY=VALUE'),
    ('optim_wrapper.optimizer.type=Adm', "type='Adm'", "Fix: 'Adam'"),
    ('optim_wrapper.optimizer.lr=-1', 'Invalid learning rate: -1'),
    ('optim_wrapper.optimizer.lr=0', 'optim_wrapper.optimizer.lr=0', 'Fix: lr > 0'),
    ('optim_wrapper.optimizer.lr=1e30', 'weight has NaN', 'Fix: a lower optim_wrapper'),
    ('optim_wrapper.optimizer.lr=fast', "'lr': 'fast'"),
    ('optim_wrapper.optimizer.momentun=0.9', 'momentun'),
    ('optim_wrapper.type=OptimWraper', 'OptimWraper'),
    ('optim_wrapper.clip_grad.max_nrm=1', 'max_nrm'),
    ('optim_wrapper.accumulative_counts=0', 'accumulative_counts'),
    ('train_cfg.max_epochs=two', 'two'),
    ('train_cfg.max_epochs=0', 'train_cfg.max_epochs=0', 'Fix: at least 1'),
    ('train_cfg.type=EpochBasedTrainLop', 'Only one of `type` or `by_epoch`'),
    ('train_cfg.max_epoch=3', 'max_epoch'),
    ('model.tau=1', 'tau'),
    ('model.type=TinyModl', 'TinyModl'),
    ('model.frozen=True', 'all are frozen', 'Fix: fewer frozen_stages'),
    ('train_dataloader.dataset=a.json', "dataset='a.json'", 'Fix: dataset=dict(', 'ann_file'),
    ('train_dataloader.dataset.type=TinyDat', 'TinyDat'),
    ('train_dataloader.dataset.ann_file=a.json', "'ann_file': 'a.json'"),
    ('train_dataloader.sampler.type=DefaultSample', 'DefaultSample'),
    ('train_dataloader.batch_size=0', 'batch_size'),
    ('train_dataloader.batch_size=two', 'two'),
    ('train_dataloader.batch_size=9 train_dataloader.drop_last=True', 'no batch: 8 samples', 'Fix'),
    ('train_dataloader.num_workers=-1', 'num_workers'),
    ('train_dataloader.persistent_workers=True', 'persistent_workers'),
    ('train_dataloader.collate_fn.type=nothing', "'collate_fn': {'type': 'nothing'}"),
    ('default_hooks.logger.type=LogerHook', 'LogerHook'),
    ('default_hooks.logger.interval=0', 'interval'),
    ('default_hooks.checkpoint.interval=often', "interval='often' of CheckpointHook", 'Fix'),
    ('custom_hooks=[NoHook]', 'hook should be an instance of Hook or dict, but got NoHook'),
    ('param_scheduler.type=MultiStepL', 'MultiStepL'),
    ('param_scheduler.type=MultiStepLR', 'milestones'),
    ('randomness.seed=abc', 'abc'),
    ('work_dir=mini.py', 'mini.py'),
    ('load_from=nowhere.pth', 'nowhere.pth'),
    ('load_from=junk.pth', 'junk.pth', 'Fix: copy or download it again'),
    ('log_level=LOUD', 'LOUD'),
    ('visualizer.type=Visualiser', 'Visualiser'),
    ('val_cfg={}', 'val_dataloader'),
    ('train mini.py --resume nowhere.pth', 'nowhere.pth', 'Fix: pass its path'),
    ('train mini.py --resume junk.pth', 'junk.pth', 'Fix: copy or download it again'),
    ('train mini.py --resume other.pth', 'other.pth', 'Fix'),
    ('train mini.py --amp', '--amp', 'requires a GPU', 'Fix: remove --amp'),
    (
        'train mini.py --auto-scale-lr',
        '--auto-scale-lr',
        'base_batch_size',
        'Fix: add auto_scale_lr',
    ),
    ('train mini.py --seed abc', '--seed', 'abc'),
    ('train mini.py --work-dir junk.pth', 'junk.pth', 'Fix: choose another'),
    ('train mini.py --launcher mpy', '--launcher', 'mpy', 'slurm'),
    ('train mini.py --launcher slurm', 'SLURM', 'Fix'),
    ('train mini.py --no-chek', '--no-chek'),
    ('train nowhere.py', "'nowhere.py' does not exist", 'Fix: pass its path'),
    ('train junk.pth', 'junk.pth'),
    ('train .', "'.'", 'Fix'),
    ('train part.py', 'part.py has no train_dataloader', 'Fix: name a full config'),
    ('train broken.py', 'broken.py', 'line 1'),
    ('train inherits.py', 'no_base.py'),
    ("own custom_imports = dict(imports=['tiny_modle'])", 'tiny_modle'),
    ("own model = dict(data_preprocessor=dict(type='Nothing'))", 'Nothing'),
    ('test tested.py nowhere.pth', "'nowhere.pth' does not exist", 'Fix: pass the .pth file'),
    ('test tested.py tested.py', 'tested.py', 'Fix'),
    ('test tested.py junk.pth', 'junk.pth', 'Fix: copy or download it again'),
    ('test tested.py other.pth', 'other.pth', 'Fix'),
    ('test tested.py shapes/annotations/val.json', 'val.json', 'Fix'),
    ('test tested.py good.pth --out a.txt', "'a.txt'", '.pkl'),
    ('test tested.py good.pth --out junk.pth/a.pkl', 'junk.pth/a.pkl', 'Fix: name a file'),
    ('test tested.py good.pth --out-item metric', '--out-item', 'metrics'),
    ('test tested.py good.pth --show-dir a', '--show-dir', 'Fix: add default_hooks.visualization'),
    ('test mini.py good.pth', 'has no test_dataloader'),
    ('train tested.py --cfg-options default_hooks.checkpoint.save_best=acc', "'acc'", 'of score'),
    (
        "own model = dict(bbox_head=dict(loss_cls=dict(tau='0.5')))",
        "'tau': '0.5'",
        'Fix: tau=0.5 without quotes',
    ),
    ('det model.bbox_head.loss_cls.tau=0', 'tau', '0'),
    ('det model.bbox_head.loss_cls.mode=per_clas', 'mode', 'per_clas', 'per_class'),
    ('det model.bbox_head.loss_cls.gamma=2', 'gamma', '_delete_=True'),
    ('det model.bbox_head.loss_cls.type=mmrank.StableAPLos', "there is 'mmrank.StableAPLoss'"),
    ('det model.bbox_head.num_classes=80', 'num_classes is 80', 'Fix: set num_classes=3'),
    ('det model.backbone.depth=19', '19'),
    ('det model.backbone.init_cfg.checkpoint=no.pth', 'init_cfg', 'Fix: name a setting'),
    (
        "own model = dict(backbone=dict(init_cfg=dict(_delete_=1, type='Pretrained', "
        "checkpoint='no.pth')))",
        'no.pth does not exist',
        'Fix: the path',
    ),
    ('det default_scope=mmdett', "'mmdett'", 'Fix: one of mmdet'),
    ('det model.neck.in_channels=[8,16,32,32]', 'model.neck.lateral_convs', 'got 64 channels'),
    ('det model.bbox_head.type=RetinaHed', 'RetinaHed'),
    ('det train_dataloader.dataset.metainfo.classes=disk', "'disk'", 'Fix'),
    ('det train_dataloader.dataset.ann_file=no.json', 'no.json', 'Fix: correct the path'),
    ('det train_dataloader.dataset.data_prefix.img=vall/', 'vall', 'Fix: correct data_prefix'),
    ('det train_dataloader.dataset.pipeline.0.type=LoadImage', 'LoadImage'),
    (
        "own train_dataloader = dict(dataset=dict(pipeline=[dict(type='LoadImageFromFile')]))",
        'ends with LoadImageFromFile',
        "Fix: end it with dict(type='PackDetInputs')",
    ),
    ('det default_hooks.checkpoint.save_best=coco/map', "'coco/map'", 'Fix: one of coco/bbox_mAP'),
    (
        'det val_evaluator.ann_file={root}/annotations/other.json',
        'has other images or objects than',
        'Fix',
    ),
    ('det val_evaluator.metric=boxes', 'boxes'),
    *(
        (f'det train_dataloader.dataset.ann_file=annotations/{name}.json', *words, 'Fix')
        for name, *words in [
            ('fractions', 'boxes in fractions'),
            ('corners', 'boxes are corners'),
            ('predictions', 'is a JSON list', 'predictions'),
            ('cut', 'is cut off'),
            ('empty', 'is empty'),
        ]
    ),
    ('benchmarks/run_seeds --plan no.yaml', 'no.yaml'),
    ('benchmarks/run_seeds --plan broken.yaml', 'broken.yaml'),
    ('benchmarks/coco_table no.json', 'no.json'),
    ('analysis_tools/calibrate no.bbox.json {root}/annotations/val.json', 'no.bbox.json'),
    ('analysis_tools/draw_detections {root}/annotations/val.json {root}/val no.json', 'no.json'),
    (
        'dataset_converters/check_coco no.json',
        'annotation file',
        'no.json',
        'Fix: correct the path',
    ),
    ('dataset_converters/split_interactions mini.py out --share 2', 'share', '2'),
    ('model_converters/publish_model no.pth a.pth', 'no.pth'),
]

#: A detector is built, and what is refused has been refused above.
SLOW = tuple(
    f'det {x}'
    for x in (
        'default_hooks.checkpoint.save_best',
        'model.bbox_head.loss_cls.mode',
        'model.bbox_head.loss_cls.gamma',
        'model.bbox_head.loss_cls.type',
        'model.bbox_head.type',
        'model.backbone.depth',
        'train_dataloader.dataset.pipeline.0',
        'val_evaluator.metric',
    )
)


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """Folder with configs, checkpoints and data, of which some are broken."""
    folder = tmp_path_factory.mktemp('mistakes')
    write_shapes_coco(folder / 'shapes', ShapesSpec(4, 2, 0, 64, 64, 3, max_size=32))
    base = str(ROOT / 'configs/stable_ap/retinanet_r18_fpn_stable-ap_demo.py')
    texts = {
        'tiny_model.py': MODULE,
        'mini.py': MINI,
        'tested.py': MINI + TESTED,
        'det.py': DETECTOR.format(base=base, root=str(folder / 'shapes')),
        'part.py': 'train_cfg = dict(max_epochs=1)\n',
        'broken.py': 'model = dict(\n',
        'inherits.py': "_base_ = 'no_base.py'\n",
        'broken.yaml': 'methods: [\n',
        'junk.pth': 'junk',
    }
    document = json.loads((folder / 'shapes/annotations/train.json').read_text())
    boxes = document['annotations']
    changed = {
        'fractions': [{**x, 'bbox': [v / 64 for v in x['bbox']]} for x in boxes],
        'corners': [{**x, 'bbox': [40, 40, 60, 60]} for x in boxes],
    }
    named = [{**x, 'file_name': f'other_{x["id"]}.png'} for x in document['images']]
    texts |= {
        f'shapes/annotations/{name}.json': json.dumps(content)
        for name, content in {
            'predictions': make_predictions(document),
            'other': {**document, 'images': named},
            **{name: {**document, 'annotations': x} for name, x in changed.items()},
        }.items()
    }
    texts['shapes/annotations/cut.json'] = json.dumps(document)[:-99]
    texts['shapes/annotations/empty.json'] = ''
    for name, text in texts.items():
        (folder / name).write_text(text)
    for name, key in (('good', 'weight'), ('other', 'bias')):
        content = dict(meta=dict(epoch=0, iter=0), state_dict={key: torch.ones(1)})
        torch.save({**content, 'message_hub': {}}, folder / f'{name}.pth')
    write_files(folder, document)
    write_data_mistakes(folder, document)
    return folder


@pytest.fixture(scope='module')
def url(files):
    """Address of a server that has nothing."""
    with http.server.ThreadingHTTPServer(
        ('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}'
        server.shutdown()


@pytest.fixture
def run(files, url, monkeypatch, run_script):
    """Runs what is typed in the folder of the files."""
    monkeypatch.chdir(files)
    monkeypatch.syspath_prepend(files)

    def call(typed):
        sys.modules.pop('tiny_model', None)
        # One that holds checkpoints of another config is refused.
        for path in Path('out').glob('epoch_*.pth'):
            path.unlink()
        for name, value in dict(root='shapes', url=url, here=files).items():
            typed = typed.replace(f'{{{name}}}', str(value))
        tool, *words = typed.split()
        if tool == 'own':
            (files / 'own.py').write_text(f"_base_ = 'det.py'\n{typed[4:]}\n")
            tool, words = 'train', ['own.py']
        elif tool == 'det':
            tool, words = 'train', ['det.py', '--cfg-options', *words]
        elif '=' in tool or not words:
            tool, words = 'train', ['mini.py', '--cfg-options', tool, *words]
        return run_script(ROOT / 'tools' / f'{tool}.py', *words)

    return call


@pytest.mark.parametrize(
    ('typed', 'words'),
    [
        pytest.param(x, words, marks=pytest.mark.slow if x.startswith(SLOW) else ())
        for x, *words in [*MISTAKES, *MORE_MISTAKES]
    ],
)
def test_a_mistake_is_one_message(typed, words, run, files):
    before = {path: path.stat().st_mtime_ns for path in files.rglob('*') if path.is_file()}
    status, output, errors = run(typed)
    assert status == 2, errors
    assert 'Traceback' not in output + errors
    message = re.split(r'^(?:\S+\.py: )?error: ', errors, flags=re.M)[-1]
    for word in words:
        assert word in message
    assert re.search(r'Fix: |must |choose from|usage: .*\[--', errors, flags=re.S)
    # Nothing was trained; what TinyMetric measures is known after the first epoch.
    trained = [x for x in {*files.rglob('*')} - {*before} if x.suffix == '.pth']
    assert bool(trained) == ('save_best=acc' in typed)
    # Sources, and files of others, are as before.
    own = {'own.py', 'kept.json'}
    for path, time in before.items():
        if files / 'out' not in path.parents and path.name not in own:
            assert path.stat().st_mtime_ns == time, path


@pytest.mark.parametrize(('typed', 'words'), [(x, words) for x, *words in DATA_MISTAKES])
def test_a_mistake_in_data_is_one_message(typed, words, run, files, monkeypatch):
    monkeypatch.setenv('COLUMNS', '400')
    status, output, errors = run(typed)
    is_check = typed.startswith('dataset_converters/check_coco own/') and '--' not in typed
    merges_bad = 'val.json own/no_size.json --merge' in typed
    assert status == (1 if is_check or merges_bad else 2), errors
    assert 'Traceback' not in output + errors
    assert not Path('o.json').exists()
    said = output if status == 1 else errors.split('error: ')[-1]
    assert errors.count('error: ') == (status == 2)
    for word in words:
        assert word in said


def test_images_of_twelve_bits_are_reported_before_training(run, files, monkeypatch):
    monkeypatch.setattr('mmengine.runner.Runner.train', lambda self: None)
    status, output, errors = run(f'det train_dataloader.dataset.ann_file={files}/own/dark.json')
    assert status == 0, errors
    assert 'end at 4000, and loaders keep the upper 8 bits' in output + errors


def test_warnings_are_said_again_at_the_end(run, monkeypatch):
    monkeypatch.setattr('mmengine.runner.Runner.train', lambda self: print('a long log'))
    names = "('triangle', 'square', 'disk')"
    status, output, errors = run(
        f'own train_dataloader = dict(dataset=dict(metainfo=dict(classes={names})))'
    )
    assert status == 0, errors
    assert 'a long log' in output
    assert errors.startswith('warning: annotation file')
    assert 'order of classes differs' in errors


def test_what_the_runner_reads_may_be_added(run, files):
    status, _, errors = run('randomness.seed=1 log_level=ERROR')
    assert status == 0, errors
    assert (files / 'out' / 'epoch_1.pth').is_file()
