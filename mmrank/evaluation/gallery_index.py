"""Nearest gallery samples and Recall@K by faiss, exact or approximate."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mmrank.checks import check_count
from mmrank.errors import UserError
from mmrank.evaluation.retrieval_features import RetrievalFeatures
from mmrank.files import replace_atomically
from mmrank.functional import RetrievalFigures, StoredEmbeddings, unit_rows
from mmrank.functional.metrics.retrieval.input import class_ranges
from mmrank.functional.metrics.retrieval.metrics import OF_ALL_POSITIVES
from mmrank.imports import required_package

INDICES = ('flat', 'ivf')
# Bytes of gallery rows, or of found neighbours, at a time.
_BLOCK = 2**26
# Training rows of a centre of an inverted list: what faiss wants at least and uses at most.
_LEAST_OF_LIST, _MOST_OF_LIST = 39, 256
# Queries of which the true neighbours are compared with those found.
_COMPARED = 256


def index_options(index: str | Mapping) -> dict:
    """Options of :class:`GalleryIndex` from ``'flat'``, ``'ivf'`` or ``dict(type='ivf', ...)``."""
    options = dict(type=index) if isinstance(index, str) else dict(index)
    if options.get('type') not in INDICES:
        raise UserError(
            f"index is {index!r}: set one of {INDICES}, or dict(type='ivf', lists=4000, probes=250)"
        )
    allowed = {'type', 'lists', 'probes'} if options['type'] == 'ivf' else {'type'}
    unknown = set(options) - allowed
    if unknown:
        raise UserError(
            f'index={index!r} has {sorted(unknown)}, which an index of type '
            f'{options["type"]!r} does not know'
        )
    for name in ('lists', 'probes'):
        check_count(f'index {name}', options.get(name, 1))
    return options


class GalleryIndex:
    """Finds the samples of an (N, D) gallery with the largest similarities.

    ``'flat'`` compares each query with the whole gallery; its scores are as in
    :func:`mmrank.functional.nearest_in_gallery` but for the rounding to float32. ``'ivf'`` compares
    it with the gallery samples in those ``probes`` of ``lists`` cells whose centres are nearest (an
    inverted file: Sivic and Zisserman, Video Google, ICCV 2003; Jégou et al., Product Quantization
    for Nearest Neighbor Search, TPAMI 2011, 4.1) and may miss some. By default there are 4 sqrt(N)
    cells, fewer in a small gallery, and a query is compared with a 16th of them.

    Of stored embeddings a block is in memory at a time, and the lists are in files beside them. The
    lists are read from ``path`` if it holds the rows of this gallery, else written there.
    """

    def __init__(
        self,
        gallery: Tensor | StoredEmbeddings,
        type: str = 'flat',
        similarity: str = 'cosine',
        lists: int | None = None,
        probes: int | None = None,
        path: str | os.PathLike | None = None,
    ) -> None:
        with required_package('faiss', f'index={type!r}', "pip install 'mmrank[faiss]'"):
            import faiss
        self._faiss, self._gallery = faiss, gallery
        self.type, self.similarity = type, similarity
        if type == 'flat':
            return
        size = len(gallery)
        if lists is None:
            lists = int(min(4 * math.sqrt(size), size / _LEAST_OF_LIST))
        lists = max(min(lists, size), 1)
        # Several where the gallery is on disk, all with the same cells.
        kept = None if path is None else self._read(path)
        self._parts = [kept] if kept else self._build(lists, path)
        self.lists = self._parts[0].nlist
        self.probes = min(probes or math.ceil(self.lists / 16), self.lists)
        for part in self._parts:
            part.nprobe = self.probes

    @property
    def is_approximate(self) -> bool:
        """Whether it may miss a neighbour."""
        return self.type != 'flat' and self.probes < self.lists

    def search(
        self, queries: Tensor, count: int, own: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Find the best gallery samples of each of (Q, D) queries, best first.

        ``own`` are (Q,) gallery rows of the queries themselves, which are left out; None for
        separate sets. Returns (Q, K) float32 scores and (Q, K) int64 gallery rows on the CPU; -1
        where fewer were found, with a score of -inf.
        """
        more = count + int(own is not None)
        rows = self._rows(queries)
        best = self._faiss.ResultHeap(len(rows), more, keep_max=True)
        if self.type == 'flat':
            metric = self._faiss.METRIC_INNER_PRODUCT
            for begin, block in self._blocks():
                near, at = self._faiss.knn(rows, block, min(more, len(block)), metric=metric)
                best.add_result(near, at + begin)
        else:
            for part in self._parts:
                best.add_result(*part.search(rows, more))
        best.finalize()
        scores, found = torch.from_numpy(best.D), torch.from_numpy(best.I)
        scores.masked_fill_(found < 0, float('-inf'))
        if own is None:
            return scores, found
        left_out = found == own.cpu()[:, None]
        left_out[:, -1] |= ~left_out.any(1)
        shape = (len(queries), count)
        return scores[~left_out].view(shape), found[~left_out].view(shape)

    def _rows(self, x: Tensor) -> np.ndarray:
        """Rows for faiss: float32, of length 1 for cosines."""
        x = x.detach().cpu().float()
        if not x.isfinite().all():
            raise ValueError('an embedding holds NaN or infinity; check the model and its input')
        largest = float(x.abs().amax()) if x.numel() else 0.0
        if self.similarity == 'dot' and largest**2 * x.shape[1] > torch.finfo(x.dtype).max / 4:
            raise UserError(
                f'dot products of embeddings with entries up to {largest:.3g} overflow float32, in '
                "which faiss computes. Fix: similarity='cosine', or scale the embeddings down"
            )
        if self.similarity == 'cosine':
            x = unit_rows(x)
        return x.contiguous().numpy()

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and content of each block of the gallery."""
        rows = max(_BLOCK // (4 * self._gallery.shape[1]), 1)
        for part in torch.arange(len(self._gallery)).split(rows):
            yield int(part[0]), self._rows(read_rows(self._gallery, part))

    def _build(self, lists: int, path):
        faiss, dimensions = self._faiss, self._gallery.shape[1]
        centres = faiss.IndexFlatIP(dimensions)
        index = faiss.IndexIVFFlat(centres, dimensions, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.spherical = self.similarity == 'cosine'
        index.cp.min_points_per_centroid = 1  # no warning about few
        g = torch.Generator().manual_seed(0)
        sample = torch.randperm(len(self._gallery), generator=g)
        sample = sample[: _MOST_OF_LIST * lists].sort().values
        index.train(self._rows(read_rows(self._gallery, sample)))
        if isinstance(self._gallery, StoredEmbeddings) and path is None:
            return self._build_on_disk(index)
        for _, block in self._blocks():
            index.add(block)
        if path is not None:
            with replace_atomically(path) as temporary:
                faiss.write_index(index, str(temporary))
        return [index]

    def _build_on_disk(self, empty) -> list:
        """An index for each block, in files that end with this object."""
        self._folder = tempfile.TemporaryDirectory(prefix='index-', dir=self._gallery.folder)
        parts = []
        for begin, block in self._blocks():
            part = self._faiss.clone_index(empty)
            part.add_with_ids(block, np.arange(begin, begin + len(block)))
            path = os.path.join(self._folder.name, str(begin))
            self._faiss.write_index(part, path)
            parts.append(self._map(path))
        return parts

    def _map(self, path: str | os.PathLike):
        """An index whose lists stay in a file until they are looked into."""
        flags = self._faiss.IO_FLAG_MMAP | self._faiss.IO_FLAG_READ_ONLY
        return self._faiss.read_index(str(path), flags)

    def _read(self, path: str | os.PathLike):
        """The index of a file, if there is one and its lists hold each row of the gallery once."""
        if not Path(path).is_file():
            return None
        index = self._map(path)
        is_alike = isinstance(index, self._faiss.IndexIVFFlat)
        is_alike = is_alike and index.metric_type == self._faiss.METRIC_INNER_PRODUCT
        if not is_alike or (index.ntotal, index.d) != tuple(self._gallery.shape):
            return None
        seen = torch.zeros(index.ntotal, dtype=torch.bool)
        of_rows = self._faiss.rev_swig_ptr
        for number in filter(index.invlists.list_size, range(index.nlist)):
            size = index.invlists.list_size(number)
            rows = torch.from_numpy(of_rows(index.invlists.get_ids(number), size).copy())
            if rows.min() < 0 or rows.max() >= len(seen):
                return None
            seen[rows] = True
            codes = of_rows(index.invlists.get_codes(number), size * index.code_size)
            kept = codes.view('float32').reshape(size, -1)
            if not np.allclose(kept, self._rows(read_rows(self._gallery, rows))):
                return None
        return index if seen.all() else None


def read_rows(x: Tensor | StoredEmbeddings, rows: Tensor) -> Tensor:
    """Some rows of embeddings, (n, D), wherever these are."""
    if isinstance(x, Tensor):
        return x[rows.to(x.device)]
    return torch.cat([x.read(part) for part in rows.split(x.rows_at_a_time(_BLOCK))])


def index_figures(
    samples: RetrievalFeatures,
    index: GalleryIndex,
    most: int,
    group: 'dist.ProcessGroup | None' = None,
) -> RetrievalFigures:
    """Rank of each query's best positive; behind the first ``most``, K, it is K + 1.

    Ties count as in ``mmrank.functional.retrieval_metrics``: the negatives come first. The figures
    of the whole ranking are NaN. The processes of ``group`` share the queries.
    """
    labels, same_set = samples.labels.cpu(), samples.in_gallery is None
    rows, gallery = samples.rows_of_queries().cpu(), samples.rows_of_gallery().cpu()
    _, size = class_ranges(labels[gallery].sort().values, labels[rows])
    num_positives = size - int(same_set)
    ranks = torch.zeros_like(num_positives)
    usable = (num_positives > 0).nonzero()[:, 0]
    if group is not None:
        parts = usable.tensor_split(dist.get_world_size(group))
        usable = parts[dist.get_rank(group)]
    source = samples.embeddings()
    others = gallery.numel() - int(same_set)

    def search(chosen: Tensor, count: int) -> None:
        for part in chosen.split(max(_BLOCK // (24 * count), 1)):
            scores, found = index.search(
                read_rows(source, rows[part]), count, part if same_set else None
            )
            best, is_known = _best_positive(
                scores, (labels[gallery[found]] == labels[rows[part], None]) & (found >= 0)
            )
            is_known |= torch.tensor(count >= others)
            best[~is_known | (best > most)] = most + 1
            ranks[part] = best
            again = part[~is_known]
            if again.numel() and index.type == 'flat':
                search(again, min(4 * count, others))

    search(usable, min(most + 1, others))
    if group is not None:
        dist.all_reduce(ranks, group=group)
    nothing = torch.full(ranks.shape, float('nan'), dtype=torch.float64)
    return RetrievalFigures(nothing, nothing, nothing, ranks, num_positives)


def _best_positive(scores: Tensor, is_positive: Tensor) -> tuple[Tensor, Tensor]:
    """Place of the best positive among those found, and whether it is certain."""
    best = scores.masked_fill(~is_positive, float('-inf')).amax(1)
    above = (scores >= best[:, None]) & ~is_positive
    rank = above.sum(1) + 1
    is_there = is_positive.any(1)
    rank[~is_there] = scores.size(1) + 1
    # Samples that were not found may tie with the last one that was.
    return rank, ~is_there | (scores[:, -1] < best)


def index_summary(
    samples: RetrievalFeatures,
    index: GalleryIndex,
    recall_at: Sequence[int],
    group: 'dist.ProcessGroup | None' = None,
    figures: RetrievalFigures | None = None,
) -> dict[str, float]:
    """Recall@K in [0, 1] of an index, under a name that says whether it is exact.

    ``recall@K``, or ``approximate_recall@K`` and ``neighbours_found@10``; ``queries`` and
    ``queries_without_positive``. Pass the result of :func:`index_figures` where it is known.
    """
    if figures is None:
        figures = index_figures(samples, index, max(recall_at), group)
    summary = {k: v for k, v in figures.summary(recall_at).items() if k not in OF_ALL_POSITIVES}
    if not index.is_approximate:
        return summary
    found = {'neighbours_found@10': share_found(samples, index)}
    return found | {
        f'approximate_{name}' if name.startswith('recall') else name: value
        for name, value in summary.items()
    }


def share_found(samples: RetrievalFeatures, index: GalleryIndex, count: int = 10) -> float:
    """Share of the true ``count`` neighbours of 256 random queries that an index finds."""
    rows, gallery = samples.rows_of_queries().cpu(), samples.gallery_embeddings()
    g = torch.Generator().manual_seed(0)
    chosen = torch.randperm(rows.numel(), generator=g)[:_COMPARED]
    own = chosen if samples.in_gallery is None else None
    count = min(count, len(gallery) - int(own is not None))
    queries = read_rows(samples.embeddings(), rows[chosen])
    exact = GalleryIndex(gallery, 'flat', samples.similarity)
    _, true = exact.search(queries, count, own)
    _, found = index.search(queries, count, own)
    is_found = (true[:, :, None] == found[:, None]).any(2)
    return float(is_found.double().mean())
