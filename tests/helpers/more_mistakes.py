"""More mistakes for ``test_typed_mistakes.py``: what is typed, and words of the message."""

import json
import unicodedata
from pathlib import Path

from PIL import Image

#: Files that are not COCO, by name.
FOREIGN_FILES = {
    'table.csv': 'image,x1,y1,x2,y2,label\n000000.png,1,2,30,40,disk\n',
    'yolo.txt': '0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.1 0.1\n',
    'voc.xml': '<annotation><object><name>disk</name></object></annotation>\n',
    'page.html': '<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n',
}
CLASSES = 'own train_dataloader = dict(dataset=dict(metainfo=dict({})))'
ANN_FILE = 'det train_dataloader.dataset.ann_file=annotations'
RUNS = 'analysis_tools/plot_seeds'

MORE_MISTAKES = [
    # Arguments in another order, or of another kind.
    ('test good.pth tested.py', 'good.pth', 'CONFIG CHECKPOINT'),
    ('train good.pth', 'good.pth', 'is a checkpoint'),
    ('train shapes/annotations/val.json', 'val.json has no train_dataloader', 'Fix: name a full'),
    ('train photo.png', 'photo.png', 'Only py/yml', 'Fix'),
    ('test tested.py .', 'checkpoint . is a folder', 'Fix'),
    ('test mini.py tested.py', 'Fix'),
    ('model_converters/publish_model a.pth good.pth', 'a.pth', 'does not exist'),
    ('model_converters/publish_model mini.py a.pth', 'mini.py', 'Fix: copy or download it again'),
    ('model_converters/publish_model good.pth a.onnx', "'a.onnx'", 'must end in .pth'),
    ('model_converters/to_stock good.pth mini.py a', 'good.pth', 'is a checkpoint'),
    ('analysis_tools/calibrate {root}/annotations/val.json {root}/annotations/val.json', 'Fix'),
    (
        'analysis_tools/draw_detections {root}/val {root}/annotations/val.json a.json',
        'annotation file shapes/val is a folder',
    ),
    (
        'analysis_tools/nearest_images good.pth mini.py photo.png --gallery shapes',
        'is a checkpoint',
    ),
    ('dataset_converters/coco_to_labels a.csv {root}/annotations/val.json', 'a.csv does not exist'),
    ('dataset_converters/coco_to_labels mini.py a.csv', 'mini.py', 'Fix: name the JSON file'),
    ('dataset_converters/coco_to_labels photo.png a.csv', 'photo.png', 'Fix: name the JSON file'),
    ('dataset_converters/coco_to_labels good.pth a.csv', 'good.pth', 'Fix'),
    ('dataset_converters/check_retrieval no_folder', 'no_folder is neither a config nor a folder'),
    ('dataset_converters/split_interactions {root}/annotations/val.json out', 'val.json', 'Fix'),
    ('dataset_converters/image_list folders classes.txt shapes a.txt', 'Fix'),
    # An output that is a source, or somebody else's.
    (
        'dataset_converters/coco_to_labels {root}/annotations/val.json {root}/annotations/val.json',
        'is the source',
        'Fix: another name',
    ),
    (
        'dataset_converters/split_interactions pairs/train.csv pairs',
        'is the source',
        'Fix: another',
    ),
    ('dataset_converters/grocery shapes shapes', 'is the source', 'Fix: another'),
    ('dataset_converters/image_list inaturalist a.json a.json', 'Fix: another'),
    ('dataset_converters/image_list folders shapes classes.txt classes.txt', 'Fix: another'),
    (
        'dataset_converters/check_coco {root}/annotations/val.json '
        '--fix {root}/annotations/val.json',
        'val.json is the source',
    ),
    (
        'dataset_converters/check_coco {root}/annotations/val.json {root}/annotations/train.json '
        '--merge {root}/annotations/train.json',
        'train.json is the source',
    ),
    ('model_converters/to_stock det.py good.pth det', 'det.py', 'Fix: another'),
    (
        'analysis_tools/training_curves runs --out shapes',
        'shapes cannot be written',
        'Fix: name a file',
    ),
    ('analysis_tools/plot_seeds twice.csv --out twice.csv', 'is the source', 'Fix: another'),
    ('first_result --out junk.pth', 'junk.pth', 'cannot be written', 'Fix: name a file'),
    ('train tested.py --work-dir taken', 'taken', 'mini.py', 'Fix: another --work-dir'),
    (
        'dataset_converters/coco_to_labels {root}/annotations/val.json junk.pth/a.csv',
        'junk.pth/a.csv cannot be written',
        'Fix: name a file',
    ),
    # Names and values of a config.
    ('default_hooks.checkpoint.max_keep_ckpt=3', 'max_keep_ckpt', 'Fix: max_keep_ckpts'),
    ('default_hooks.checkpoint.save_bst=auto', 'save_bst', 'Fix: save_best'),
    ('default_hooks.checkpoint.interval=0', 'interval=0', 'Fix'),
    ('default_hooks.checkpoint.out_dir=junk.pth', 'junk.pth', 'Fix: name another path'),
    ('train tested.py --cfg-options train_cfg.val_interval=0', 'val_interval=0', 'Fix: at least 1'),
    ('train tested.py --cfg-options train_cfg.val_interval=-1', 'val_interval=-1', 'Fix: at least'),
    ('train tested.py --cfg-options val_evaluator.type=TinyMetrik', 'TinyMetrik'),
    ('train tested.py --cfg-options val_evaluator.thr=1', 'thr'),
    ('train tested.py --cfg-options val_dataloader.batch_size=0', 'batch_size'),
    ('train_cfg.max_epochs=-1', 'max_epochs=-1', 'Fix: at least 1'),
    ('train_cfg.by_epoch=False', 'max_epochs'),
    ('train_cfg=None', 'no train_cfg', 'Fix'),
    ('model=None', 'no model', 'Fix'),
    ('optim_wrapper.optimizer.weight_decay=-1', 'weight_decay'),
    ('optim_wrapper.optimizer.betas=[0.9,0.99]', 'betas'),
    ('optim_wrapper.optimizer.lr=None', 'lr'),
    ('optim_wrapper=None', 'no optim_wrapper', 'Fix'),
    ('optim_wrapper.clip_grad=1', 'clip_grad'),
    ('train_dataloader.batch_sise=4', "'batch_sise'", 'Fix'),
    ('train_dataloader.sampler.shuffel=True', "'shuffel'", 'Fix'),
    ('train_dataloader.dataset=None', 'dataset'),
    ('train_dataloader.batch_size=-2', 'batch_size'),
    ('train_dataloader.batch_size=1.5', '1.5'),
    ("own custom_hooks = [dict(type='EMAHok')]", 'EMAHok'),
    ('param_scheduler.type=StepLR', 'step_size'),
    ('param_scheduler.type=LinearLR param_scheduler.start_factor=2', '2'),
    ('randomness.sed=1', 'sed'),
    ('log_processor.window_sise=5', 'window_sise'),
    ('visualizer.vis_backends.type=LocalBackend', 'LocalBackend'),
    ('train_cfg.max_epochs=1.5', '1.5'),
    ('resume=True load_from=nowhere.pth', 'nowhere.pth', 'Fix'),
    ('train self.py', 'self.py', 'a _base_ leads back to it', 'Fix'),
    ('train loop_a.py', 'loop_a.py', 'a _base_ leads back to it', 'Fix'),
    ('train latin.py', 'latin.py', 'utf-8', 'Fix'),
    # Command lines.
    ('train mini.py mini.py', 'unrecognized arguments: mini.py'),
    ('train mini.py --cfg-options', '--cfg-options'),
    ('train mini.py --allow-partial', '--allow-partial'),
    ('train mini.py --resume .', 'checkpoint . is a folder', 'Fix'),
    ('train mini.py --resume tested.py', 'tested.py', 'Fix'),
    ('train mini.py --launcher pytorch', ' RANK is not set', 'Fix: tools/dist_train.sh'),
    ('train mini.py --launcher mpi', 'OMPI_COMM_WORLD_RANK', 'mpirun', 'Fix: tools/dist_train'),
    ('test tested.py good.pth --tta', 'tta', 'Fix'),
    ('test tested.py good.pth --cfg-options test_evaluator=None', 'no test_dataloader or', 'Fix'),
    ('test tested.py good.pth --wait-time long', '--wait-time', 'long'),
    ('test tested.py good.pth --out .', "'.'", 'must end in'),
    ('benchmarks/run_seeds --plan good.yaml --jobs 0', 'jobs', '0'),
    ('benchmarks/run_seeds --plan plan.yaml', 'seedz', 'Fix'),
    ('research/paper_table figure', "'figure'", 'Fix'),
    ('dataset_converters/make_shapes_coco --out a --num-train -1', '-1'),
    # Files of data.
    *((f'{ANN_FILE}/{name}', name, 'Fix: ') for name in FOREIGN_FILES),
    (f'{ANN_FILE}/backslash.json', 'backslash', "Fix: write '/'"),
    (f'{ANN_FILE}/decomposed.json', 'Unicode', 'Fix'),
    (f'{ANN_FILE}/capitals.json', 'capital', 'Fix'),
    (f'{ANN_FILE}/percent.json', '%20', 'Fix'),
    (f'{ANN_FILE}', 'is a folder', 'Fix'),
    ('det train_dataloader.dataset.data_root=nowhere', 'nowhere', 'Fix'),
    ('det val_evaluator.ann_file=no.json', 'no.json', 'Fix'),
    ('det train_dataloader.dataset.filter_cfg.min_size=1000', 'min_size', 'Fix'),
    (CLASSES.format("classes=('disk','disk','triangle')"), "'disk'", 'twice', 'Fix'),
    (CLASSES.format("_delete_=1,CLASSES=('disk','square','triangle')"), 'CLASSES', 'Fix: classes'),
    (f'{ANN_FILE}/single.json train_dataloader.drop_last=True', 'no batch', 'Fix'),
    # Weights from elsewhere.
    ('load_from={url}/a.pth', '/a.pth', '404', 'Fix'),
    ('load_from=http://127.0.0.1:9/a.pth', '127.0.0.1', 'no network', 'Fix: '),
    (
        'test tested.py good.pth --cfg-options test_evaluator.type=FullDisk',
        'No space left on device',
        'Fix: free some disk space',
    ),
    ('load_from=torchvision://resnet19', 'resnet19', 'Fix'),
    ('det model.backbone.init_cfg=None load_from=s3://bucket/a.pth', 's3', 'Fix'),
    # Records.
    (f'{RUNS} torn.csv', 'torn.csv', 'line 3', 'Fix'),
    (f'{RUNS} glued.csv', 'glued.csv', 'line 3', 'Fix'),
    (f'{RUNS} twice.csv', 'twice.csv', 'line 3', 'Fix'),
    (f'{RUNS} nan.csv', 'nan.csv', 'line 2', 'mAP', 'Fix'),
    (f'{RUNS} mini.py', 'mini.py', 'Fix'),
]


def write_files(folder: Path, document: dict) -> None:
    """Write what the mistakes name next to a small COCO data set; its train part is given."""
    annotations = folder / 'shapes' / 'annotations'
    for name, text in FOREIGN_FILES.items():
        (annotations / name).write_text(text)
    first = document['images'][0]
    own = dict(document, images=[first])
    own['annotations'] = [x for x in document['annotations'] if x['image_id'] == first['id']]
    names = {
        'single': first['file_name'],
        'backslash': f'sub\\{first["file_name"]}',
        'decomposed': unicodedata.normalize('NFD', 'caf\u00e9.png'),
        'capitals': 'Plain.PNG',
        'percent': 'two%20words.png',
    }
    for name, file_name in names.items():
        changed = dict(own, images=[dict(first, file_name=file_name)])
        (annotations / f'{name}.json').write_text(json.dumps(changed))
    train = folder / 'shapes' / 'train'
    pixels = (train / first['file_name']).read_bytes()
    for name in ('caf\u00e9.png', 'plain.png', 'two words.png', f'sub/{first["file_name"]}'):
        (train / name).parent.mkdir(exist_ok=True)
        (train / name).write_bytes(pixels)
    Image.new('RGB', (4, 4)).save(folder / 'photo.png')
    for name in ('pairs', 'captions', 'runs/20260101_000000/vis_data', 'taken'):
        (folder / name).mkdir(parents=True)
    (folder / 'taken' / 'epoch_1.pth').write_bytes((folder / 'good.pth').read_bytes())
    (folder / 'taken' / 'mini.py').write_text((folder / 'mini.py').read_text())
    for name in ('jpg', 'txt'):
        (folder / 'captions' / f'a.{name}').write_bytes(pixels if name == 'jpg' else b'a disk')
    record = 'method,seed,step,mAP\na,0,10,0.1\n'
    texts = {
        'pairs/train.csv': 'user,item\n' + ''.join(f'{u},{i}\n' for u in 'abc' for i in range(12)),
        'runs/20260101_000000/vis_data/scalars.json': '{"loss": 1.0, "iter": 1, "step": 1}\n',
        'classes.txt': 'train\nval\n',
        'good.yaml': 'methods: [mini.py]\nout_dir: seeds\nseeds: [0]\nmetrics: [score]\n',
        'plan.yaml': 'methods: [mini.py]\nout_dir: out\nseedz: [0]\nmetrics: [score]\n',
        'self.py': "_base_ = 'self.py'\n",
        'loop_a.py': "_base_ = 'loop_b.py'\n",
        'loop_b.py': "_base_ = ['loop_a.py']\n",
        'torn.csv': f'{record}a,1,10,0.2',
        'glued.csv': f'{record}a,1,10,0.2a,2,10,0.3\n',
        'twice.csv': f'{record}a,0,10,0.2\n',
        'nan.csv': record.replace('0.1', 'nan'),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / 'latin.py').write_bytes("work_dir = 'caf\u00e9'\n".encode('latin-1'))
    one = dict(
        images=[dict(id=1, file_name='a.jpg')], annotations=[dict(image_id=1, category_id=1)]
    )
    (folder / 'a.json').write_text(json.dumps(one))
