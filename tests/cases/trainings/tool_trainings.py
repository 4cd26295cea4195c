"""Small trainings of published configs, and their start by the tool."""

from pathlib import Path

from cifar_trees import write_arrays
from forked_processes import start_script
from gloo_processes import free_port
from mistake_files import write_detector
from mmengine.config import Config

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ROOT / 'configs'
TRAIN = ROOT / 'tools' / 'train.py'


def exact_detector(folder: Path) -> Config:
    """A narrow RetinaNet with the stable AP loss by SUM: 4 epochs of 3 iterations.

    The mean of the positives is that under the previous weights. It has an average of the weights,
    a data loading worker and a best checkpoint.
    """
    from mmrank.datasets.shapes_coco import ShapesSpec, write_shapes_coco

    size = (96, 96)
    # No image without an object, which the config would leave out.
    spec = ShapesSpec(24, 4, 0, *size, num_classes=3, max_size=64, empty_fraction=0)
    write_shapes_coco(folder / 'shapes', spec)
    cfg = Config.fromfile(write_detector(folder / 'detector.py', folder / 'shapes'))
    cfg.model.test_cfg.max_per_img = 20
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        for step in loader.dataset.pipeline:
            if step.type == 'Resize':
                step.scale = size
    cfg.train_dataloader.num_workers = 1
    cfg.train_dataloader.batch_size = 8
    cfg.train_cfg.update(max_epochs=4, val_interval=1)
    cfg.default_hooks.checkpoint.update(max_keep_ckpts=2, save_best='coco/bbox_mAP', rule='greater')
    cfg.model.bbox_head.loss_cls.mean_mode = 'exact'
    cfg.optim_wrapper.optimizer = dict(type='mmrank.SUM', lr=0.01)
    cfg.custom_hooks.append(dict(type='EMAHook', momentum=0.1))
    cfg.custom_hooks.append(dict(type='mmrank.PreviousWeightsHook'))
    return cfg


def isogclr(folder: Path) -> Config:
    """A temperature of iSogCLR for each of 300 images: 6 epochs of 9."""
    # Images of a class are alike, so that temperatures differ.
    write_arrays(folder / 'images', dict(train=36, test=2), size=16)
    cfg = Config.fromfile(CONFIGS / 'isogclr' / 'conv3_isogclr_cifar10-lt.py')
    cfg.model.loss.update(num_samples=300, eta=0.002)
    train = cfg.train_dataloader
    train.batch_size = 32
    train.dataset.update(data_root=str(folder / 'images'), imbalance_ratio=1, val_per_class=6)
    cfg.val_dataloader.dataset.datasets = [train.dataset, dict(train.dataset, split='val')]
    cfg.val_evaluator = [dict(type='mmrank.KNNMetric')]
    cfg.train_cfg.update(max_epochs=6, val_interval=2)
    cfg.default_hooks.checkpoint.interval = 1
    return cfg


def two_tower(folder: Path) -> Config:
    """Two embedding tables with the in-batch loss: 12 epochs of 7."""
    from make_interactions import write_interactions

    write_interactions(folder / 'pairs')
    cfg = Config.fromfile(CONFIGS / 'in_batch' / 'two-tower8_unbiased-logistic_synthetic.py')
    for split in ('train', 'val'):
        cfg[f'{split}_dataloader'].dataset.data_root = f'{folder}/pairs'
    cfg.train_cfg.max_epochs = 12
    return cfg


TRAININGS = {'exact_detector': exact_detector, 'isogclr': isogclr, 'two_tower': two_tower}


def write_config(name: str, folder: Path, ranks: int, hooks=()) -> Path:
    """Write the data and the config of a training in :data:`TRAININGS`; returns the config.

    ``ranks`` processes share the batch of one. ``hooks`` are added.
    """
    cfg = TRAININGS[name](folder)
    cfg.train_dataloader.batch_size //= ranks
    if name == 'exact_detector' and ranks > 1:
        # Averages of the EMAHook have the statistics of their own process.
        cfg.model.backbone.norm_eval = True
    for key in ('test_dataloader', 'test_evaluator', 'test_cfg'):
        cfg.pop(key, None)
    cfg.randomness = dict(seed=0, diff_rank_seed=True)
    cfg.custom_imports = dict(imports=['resume_run'])
    cfg.custom_hooks = [
        *cfg.custom_hooks,
        dict(type='mmengine.LossLogHook'),
        # mmengine saves the batch norm statistics of the first process only.
        dict(type='mmengine.SyncBuffersHook'),
        *hooks,
    ]
    path = folder / f'{name}_{ranks}.py'
    cfg.dump(path)
    return path


def start(config: Path, work_dir: Path, ranks: int) -> list:
    """Start ``tools/train.py CONFIG --resume``; returns the processes by rank.

    The output of rank r is appended to ``<work_dir>_<r>.log``.
    """
    options = ['--work-dir', work_dir, '--resume']
    env = {'OMP_NUM_THREADS': '1'}
    if ranks > 1:
        options += ['--launcher', 'pytorch']
        env.update(WORLD_SIZE=str(ranks), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()))
    processes = []
    for rank in range(ranks):
        if 'WORLD_SIZE' in env:
            env.update(RANK=str(rank), LOCAL_RANK=str(rank))
        log = f'{work_dir}_{rank}.log'
        processes.append(start_script(TRAIN, config, *options, out=log, err=log, env=env))
    return processes
