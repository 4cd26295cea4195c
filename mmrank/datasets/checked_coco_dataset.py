"""mmdet's CocoDataset with a check of its file; needs mmdet to import."""

from functools import partial

from mmdet.datasets import CocoDataset, LVISV1Dataset
from mmdet.datasets.api_wrappers import COCO
from mmengine.logging import print_log
from mmengine.registry import Registry

from mmrank.annotations.check import inspect_coco
from mmrank.annotations.images import refuse_other_size
from mmrank.annotations.lvis import INCOMPLETE, NEGATIVE
from mmrank.annotations.read import read_coco_json


class CheckedCocoDataset(CocoDataset):
    """``mmdet.CocoDataset`` that refuses a bad annotation file.

    mmdet drops or crashes on bad annotations, often far from their cause; this data set reports on
    loading what is wrong, where, and how to fix it. It takes the arguments of ``CocoDataset``.
    """

    #: Whether every image must say which classes it lacks.
    federated = False

    def load_data_list(self) -> list[dict]:
        # CocoDataset builds self.COCOAPI(path); a check there reads a large file only once.
        self.COCOAPI = partial(_load_checked, dataset=self)
        try:
            return super().load_data_list()
        finally:
            del self.COCOAPI

    def prepare_data(self, idx: int) -> dict | None:
        """Load a sample; a ``UserError`` if the image has another size than the file says."""
        info = self.get_data_info(idx)
        sample = self.pipeline(info)
        refuse_other_size(info, f'and {self.ann_file}')  # the loader writes it to the same dict
        return sample


class LVISDataset(CheckedCocoDataset):
    """LVIS v1 with what its images are annotated for.

    ``mmdet.LVISV1Dataset`` drops ``neg_category_ids`` and ``not_exhaustive_category_ids``; then
    every box without an object is a negative of every class, also of those that no one looked for.
    This one has them as ``exhaustive_labels``, which a head with ``federated=True`` reads::

        dict(type='mmrank.LVISDataset', ..., pipeline=[
            ...,
            dict(type='PackDetInputs', meta_keys=(
                'img_id', 'img_path', 'ori_shape', 'img_shape',
                'scale_factor', 'flip', 'flip_direction',
                'exhaustive_labels'))])

    It does not need the package ``lvis``. The images of a ``Mosaic``, ``MixUp`` or ``CopyPaste``
    are several at once, of which only the first says what it is annotated for: do not use them with
    it.

    For another federated data set in LVIS's form set ``metainfo``. It takes the arguments of
    :class:`CheckedCocoDataset`.
    """

    METAINFO = LVISV1Dataset.METAINFO
    federated = True

    def parse_data_info(self, raw_data_info: dict) -> dict:
        """Parse an image, with the classes it is annotated for.

        ``exhaustive_labels`` are the sorted indices of the classes whose every object in this image
        is annotated; that may be none at all. Augmentations that drop a box do not change it.
        """
        info = super().parse_data_info(raw_data_info)
        image = raw_data_info['raw_img_info']
        present = {a['category_id'] for a in raw_data_info['raw_ann_info']}
        known = present.union(image[NEGATIVE]).difference(image[INCOMPLETE])
        info['exhaustive_labels'] = sorted(self.cat2label[x] for x in known if x in self.cat2label)
        return info


def coco_class(data_type: object, registry: Registry) -> type | None:
    """The class of a config's data set if it reads COCO's detection files, else None."""
    own = {f'mmrank.{x.__name__}': x for x in (CheckedCocoDataset, LVISDataset)}
    found = own.get(data_type) or (
        registry.get(data_type) if isinstance(data_type, str) else data_type
    )
    if not isinstance(found, type) or not issubclass(found, CocoDataset):
        return None
    # A subclass that reads files its own way (panoptic, captions) has its own format.
    is_coco = issubclass(found, CheckedCocoDataset) or all(
        getattr(found, name) is getattr(CocoDataset, name)
        for name in ('load_data_list', 'parse_data_info')
    )
    return found if is_coco else None


def inspect_options(dataset: CocoDataset) -> dict:
    """How :func:`inspect_coco` looks at the file of a data set; no folder of remote images."""
    filters = {} if dataset.test_mode else dataset.filter_cfg or {}
    is_local = (dataset.backend_args or {}).get('backend', 'local') == 'local'
    is_local = is_local and '://' not in dataset.ann_file
    return dict(
        image_dir=(dataset.data_prefix.get('img') or dataset.data_root or '.')
        if is_local
        else None,
        classes=dataset.metainfo['classes'],
        skip_empty_images=bool(filters.get('filter_empty_gt')),
        min_size=filters.get('min_size', 0),
        federated=getattr(dataset, 'federated', False),
    )


def _load_checked(path: str, dataset: CheckedCocoDataset) -> COCO:
    document = read_coco_json(path)
    report = inspect_coco(
        document,
        dataset.ann_file,
        require_annotations=not dataset.test_mode,
        require_masks=any(
            getattr(step, 'with_mask', False) for step in dataset.pipeline.transforms
        ),
        **inspect_options(dataset),
    )
    report.raise_if_bad()
    if report.warnings:
        print_log(report.describe(report.warnings), logger='current', level=30)
    coco = COCO()
    coco.dataset = document
    coco.createIndex()
    coco.img_ann_map = coco.imgToAnns
    coco.cat_img_map = coco.catToImgs
    return coco
