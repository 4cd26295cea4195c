"""The models of a release and the data that they are trained on."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mmrank.errors import UserError


@dataclass(frozen=True)
class DataSource:
    """Data of a model: where it lies and where its config looks for it.

    Attributes:
        folder: Its folder in the data root of the user.
        needed: A file of that folder.
        target: Folder in ``data/`` that the configs name.
        converter: Tool of ``tools/dataset_converters`` that makes the target from ``needed``, and
            its options. Empty: the folder is the target.
    """

    folder: str
    needed: str
    target: str
    converter: tuple[str, ...] = ()

    def is_there(self, data_root: Path) -> bool:
        """Whether the data root has it."""
        return (data_root / self.folder / self.needed).exists()

    def prepare(self, data_root: Path, build: Path, converters: Path) -> None:
        """Put it where the configs look for it, once.

        Args:
            data_root: Folder with the data sets.
            build: Folder that the trainings run in.
            converters: ``tools/dataset_converters``.

        Raises:
            UserError: If it is not there or cannot be converted.
        """
        target = build / 'data' / self.target
        if target.exists():
            return
        source = data_root / self.folder
        if not self.is_there(data_root):
            raise UserError(
                f'{source / self.needed} does not exist.\n  Fix: pass the folder with the data '
                'sets, --data-root DIR, or name the models to build; --list shows what is there'
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if not self.converter:
            target.unlink(missing_ok=True)  # a link that leads nowhere
            target.symlink_to(source.resolve(), target_is_directory=True)
            return
        tool, *options = self.converter
        done = subprocess.run(
            [
                sys.executable,
                str(converters / tool),
                str(source / self.needed),
                str(target),
                *options,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise UserError(
                f'{tool} cannot convert {source / self.needed}: {done.stderr.strip()[-500:]}'
            )


@dataclass(frozen=True)
class Asset:
    """One model of a release.

    Attributes:
        name: Its name in the model index, which its config has, too.
        config: Config, relative to the checkout.
        data: What it is trained on.
        dataset: Name of the data in tables, with its split.
        task: Task, as model indices name it.
        metrics: Names in tables by key of the evaluator; the first is shown first.
        scale: Factor of the metrics, 100 where they are shares.
        cfg_options: What differs from the config.
        seed: Seed of the training.
    """

    name: str
    config: str
    data: DataSource
    dataset: str
    task: str
    metrics: Mapping[str, str]
    scale: float = 1.0
    cfg_options: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


ASSETS = (
    Asset(
        name='retinanet_r18_fpn_stable-ap_bccd',
        config='configs/stable_ap/retinanet_r18_fpn_stable-ap_bccd.py',
        data=DataSource('bccd', 'annotations/train.json', 'bccd'),
        dataset='BCCD',
        task='Object Detection',
        metrics={
            'coco/bbox_mAP': 'box AP',
            'coco/bbox_mAP_50': 'box AP50',
            'coco/bbox_mAP_75': 'box AP75',
        },
        scale=100,
    ),
    Asset(
        name='conv4_smooth-ap_omniglot',
        config='configs/smooth_ap/conv4_smooth-ap_omniglot.py',
        data=DataSource(
            'omniglot', 'images_background_small1.zip', 'omniglot', ('omniglot.py', '--size', '28')
        ),
        dataset='Omniglot, unseen alphabets',
        task='Image Retrieval',
        metrics={'retrieval/mAP': 'mAP', 'retrieval/recall@1': 'Recall@1'},
        # As tuned by configs/soprc/omniglot_losses.yaml.
        cfg_options={'optim_wrapper.optimizer.lr': '0.01', 'model.head.loss.tau': '0.03'},
    ),
    Asset(
        name='smallconv_stable-ap_cifar10-binary-lt-16',
        config='configs/long_tail/smallconv_stable-ap_cifar10-binary-lt-16.py',
        data=DataSource('cifar10', 'cifar10_jpg.zip', 'cifar10_16', ('cifar10.py', '--size', '16')),
        dataset='CIFAR-10-LT, birds against the rest',
        task='Image Classification',
        metrics={'ranking/AP': 'AP', 'ranking/AUROC': 'AUROC'},
        # Four times the passes of the comparison of losses.
        cfg_options={
            'optim_wrapper.optimizer.lr': '0.3',
            'train_cfg.max_iters': '800',
            'train_cfg.val_interval': '801',
            'param_scheduler.0.T_max': '800',
            'param_scheduler.0.end': '800',
            'default_hooks.checkpoint.interval': '800',
        },
    ),
    Asset(
        name='two-tower64_unbiased-square_ml-1m',
        config='configs/in_batch/two-tower64_unbiased-square_ml-1m.py',
        data=DataSource('ml1m', 'train.csv.gz', 'ml1m'),
        dataset='MovieLens-1M, any rating',
        task='Recommendation',
        metrics={'top_k/precision@5': 'Precision@5', 'top_k/recall@25': 'Recall@25'},
    ),
)


def chosen_assets(names: list[str], assets: tuple[Asset, ...] = ASSETS) -> list[Asset]:
    """The assets of these names, all without a name.

    Args:
        names: From the command line.
        assets: What there is.

    Returns:
        The assets, in their order.

    Raises:
        UserError: If a name is unknown.
    """
    known = [asset.name for asset in assets]
    for name in names:
        if name not in known:
            raise UserError(
                f'{name!r} is no model of the release.\n  Fix: take one of ' + ', '.join(known)
            )
    return [asset for asset in assets if not names or asset.name in names]
