"""mmdet's CocoDataset with a check of its file; needs mmdet to import."""

from functools import partial

from mmdet.datasets import CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmengine.logging import print_log

from mmrank.datasets.checks.coco_inspect import inspect_coco
from mmrank.datasets.checks.coco_reading import read_coco_json


class CheckedCocoDataset(CocoDataset):
    """``mmdet.CocoDataset`` that refuses a bad annotation file.

    mmdet drops or crashes on bad annotations, often far from their cause;
    this data set reports on loading what is wrong, where, and how to fix it.
    It takes the arguments of ``CocoDataset``.

    Args:
        *args: As for ``mmdet.CocoDataset``.
        verify_images: Also read each image's header and compare its size.
        **kwargs: As for ``mmdet.CocoDataset``.
    """

    def __init__(self, *args, verify_images: bool = False, **kwargs) -> None:
        self.verify_images = verify_images
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Load annotations after checking them.

        Returns:
            What ``CocoDataset.load_data_list`` returns.

        Raises:
            UserError: If the file cannot be read or has an error.
        """
        # CocoDataset builds self.COCOAPI(path); checking there reads a large
        # file once and not twice.
        self.COCOAPI = partial(_load_checked, dataset=self)
        try:
            return super().load_data_list()
        finally:
            del self.COCOAPI


def _load_checked(path: str, dataset: CheckedCocoDataset) -> COCO:
    """Read, check and index the annotation file of ``dataset``."""
    document = read_coco_json(path)
    filters = dataset.filter_cfg or {}
    is_local = (dataset.backend_args or {}).get('backend', 'local') == 'local'
    report = inspect_coco(
        document,
        dataset.ann_file,
        dataset.data_prefix.get('img') if is_local else None,
        classes=dataset.metainfo['classes'],
        verify_images=dataset.verify_images,
        skip_empty_images=(
            not dataset.test_mode and filters.get('filter_empty_gt', False)
        ),
        min_size=0 if dataset.test_mode else filters.get('min_size', 0),
        require_annotations=not dataset.test_mode,
    )
    report.raise_if_bad()
    if report.warnings:
        print_log(report.describe(report.warnings), logger='current', level=30)
    coco = COCO()
    coco.dataset = document
    coco.createIndex()
    coco.img_ann_map, coco.cat_img_map = coco.imgToAnns, coco.catToImgs
    return coco
