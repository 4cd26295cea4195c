"""The images of a gallery that are nearest to a picture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.dataset import Compose, default_collate
from torch import Tensor, nn

from mmrank.datasets.image_header import IMAGE_SUFFIXES, image_fault
from mmrank.errors import UserError
from mmrank.evaluation.gallery_index import GalleryIndex
from mmrank.functional import StoredEmbeddings, nearest_in_gallery


@dataclass(frozen=True)
class NearImage:
    """One image file of the gallery, and its cosine similarity to the picture."""

    path: str
    score: float


def images_in(folder: str | Path) -> list[str]:
    """Image files in a folder and the folders in it, sorted.

    Raises:
        UserError: If there is none.
    """
    found = sorted(
        str(path)
        for path in Path(folder).rglob('*')
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()
    )
    if not found:
        raise UserError(
            f'gallery {str(folder)!r} has no image '
            f'({", ".join(IMAGE_SUFFIXES)}). Fix: pass a folder of images'
        )
    return found


def embed_images(
    model: nn.Module, pipeline: Sequence[Mapping], paths: Sequence[str], batch_size: int = 32
) -> Iterator[Tensor]:
    """Yield (n, D) embeddings of image files, batch by batch, on the CPU.

    Args:
        model: In evaluation mode; its ``predict`` puts ``feature`` into the data samples, as
            ``mmrank.EmbeddingRetriever`` does.
        pipeline: Transforms of the test set.
        paths: The files.
        batch_size: Images at a time.

    Raises:
        UserError: If a file is no whole image, or the model gives no feature.
    """
    transform = Compose(pipeline)
    for start in range(0, len(paths), batch_size):
        batch = []
        for path in paths[start : start + batch_size]:
            fault = image_fault(path)
            if fault is not None:
                raise UserError(
                    f'image {path}: {fault}. Fix: copy or convert it again, '
                    'or take it out of the folder'
                )
            # A label is needed by some transforms, and never looked at.
            batch.append(transform(dict(img_path=path, gt_label=0)))
        with torch.no_grad():
            samples = model.test_step(default_collate(batch))
        if not hasattr(samples[0], 'feature'):
            raise UserError(
                f'model.type is {type(model).__name__}, whose predict gives no feature. Fix: pass '
                "a config of a type='mmrank.EmbeddingRetriever' or 'mmrank.TwoViewLearner'"
            )
        yield torch.stack([sample.feature.cpu() for sample in samples])


def nearest_images(
    query: Tensor,
    gallery: Tensor | StoredEmbeddings,
    paths: Sequence[str],
    count: int = 10,
    index: GalleryIndex | None = None,
) -> list[NearImage]:
    """Find the nearest images, best first; an approximate index may miss some.

    Args:
        query: (D,) embedding of the picture.
        gallery: (N, D) embeddings.
        paths: Their N files.
        count: How many to find.
        index: Over the gallery, by cosine; None compares with all of it.
    """
    if index is None:
        scores, rows = nearest_in_gallery(query[None], gallery, count)
    else:
        scores, rows = index.search(query[None], min(count, len(paths)))
    return [
        NearImage(str(paths[row]), score)
        for score, row in zip(scores[0].tolist(), rows[0].tolist())
        if row >= 0
    ]
