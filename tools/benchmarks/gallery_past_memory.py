r"""Time and memory of retrieval figures whose gallery stays on disk.

    python tools/benchmarks/gallery_past_memory.py
    python tools/benchmarks/gallery_past_memory.py --memory 256 \
        --plan-queries 1000000 --plan-gallery 1000000

Some queries and a tenth of them tell what a score costs and what a row of the gallery; the plan of
a larger gallery follows. Times are CPU seconds, peak memory is without pages of the files. With
faiss installed, the same queries are searched by its indices, for Recall@K.
"""

import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from mmrank.functional import StoredEmbeddings, retrieval_metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lib.common.command_line import tool_parser

_CHUNK = 4096


def make_file(path, samples, dimensions, class_size):
    """Write embeddings that lean to the mean of their class; give labels."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(samples // class_size, (samples,), generator=g)
    means = torch.randn(1000, dimensions, generator=g)
    array = np.lib.format.open_memmap(path, 'w+', 'float32', (samples, dimensions))
    for begin in range(0, samples, _CHUNK):
        part = labels[begin : begin + _CHUNK]
        rows = means[part % 1000] + means[(part // 1000) % 1000].roll(1, 1)
        rows += 2 * torch.randn(len(part), dimensions, generator=g)
        array[begin : begin + len(part)] = rows.numpy()
    return labels


def own_memory():
    """Bytes of this process without pages of files (Linux)."""
    text = Path('/proc/self/status').read_text()
    return 1024 * int(text.partition('RssAnon:')[2].split()[0])


class PeakMemory:
    """Largest ``own_memory`` within a block, and the memory before it."""

    def __enter__(self):
        self.before, self.largest, self._done = own_memory(), 0, False
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._done = True
        self._thread.join()

    def _watch(self):
        while not self._done:
            self.largest = max(self.largest, own_memory() - self.before)
            time.sleep(0.005)


def measure(function):
    """Result, CPU seconds and peak of memory."""
    with PeakMemory() as peak:
        start = time.process_time()
        result = function()
        seconds = time.process_time() - start
    return result, seconds, peak.largest


def panels_of(queries, gallery, dimensions, class_size, memory):
    """Passes over a gallery within a budget, of the code itself."""
    from mmrank.functional.metrics.retrieval.input import RetrievalSets
    from mmrank.functional.metrics.retrieval.ranking import plan_blocks

    none = torch.empty(0, dimensions)
    sets = RetrievalSets(none, none, None, None, None, gallery, None)
    sizes = torch.full((queries,), class_size)
    return len(plan_blocks(sets, sizes, memory, torch.get_num_threads())[2])


def main():
    sizes = dict(queries=2000, gallery=200_000, dimensions=128, class_size=5, memory=(64, 'MiB'))
    plan = dict(plan_queries=1_000_000, plan_gallery=1_000_000)
    args = tool_parser(__doc__, **sizes, **plan, threads=1).parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        each_score, each_row = compare(console, args, Path(folder) / 'x.npy')
    scores = args.plan_queries * args.plan_gallery
    rows = args.plan_gallery
    hours = (each_score * scores + each_row * rows) / 3600
    panels = panels_of(
        *(args.plan_queries, args.plan_gallery, args.dimensions),
        *(args.class_size, args.memory * 2**20),
    )
    size = 4 * args.plan_gallery * args.dimensions
    console.print(
        f'{args.plan_queries:,} x {args.plan_gallery:,} x {args.dimensions}: {scores / 1e9:,.0f} '
        f'billion scores at {1e9 * each_score:.2f} s, {rows:,} rows to sort at '
        f'{1e6 * each_row:.0f} us: {hours:.1f} CPU hours; {panels:,} passes over '
        f'{size / 2**20:,.0f} MiB ({panels * size / 2**30:,.0f} GiB read)'
    )


def compare(console, args, path):
    """Measure a block and show it; CPU seconds of a score and of a row."""
    total = args.queries + args.gallery
    labels = make_file(path, total, args.dimensions, args.class_size)
    rows = torch.arange(total)
    parts = rows[: args.queries], rows[args.queries :]
    array = np.load(path, mmap_mode='r')

    def on_disk(queries=args.queries):
        sets = [(StoredEmbeddings(array, x), labels[x]) for x in (parts[0][:queries], parts[1])]
        return retrieval_metrics(*sets[0], *sets[1], memory_limit=args.memory * 2**20)

    def in_memory():
        x = torch.from_numpy(np.load(path))
        sets = [(x[part], labels[part]) for part in parts]
        return retrieval_metrics(*sets[0], *sets[1])

    scores = args.queries * args.gallery / 1e9
    table = Table('figures', *('CPU s', 's a billion scores', 'peak MiB', 'recall@1', 'mAP'))
    found = []
    for name, function in ((f'on disk, memory={args.memory}', on_disk), ('in memory', in_memory)):
        figures, seconds, peak = measure(function)
        if not found:
            on_disk_seconds = seconds
        found.append(figures)
        summary = figures.summary((1,))
        table.add_row(
            *(name, f'{seconds:.2f}', f'{seconds / scores:.2f}'),
            *(f'{peak / 2**20:.0f}', f'{100 * summary["recall@1"]:.3f}'),
            f'{100 * summary["mAP"]:.4f}',
        )
    if find_spec('faiss'):
        for kind in ('flat', 'ivf'):
            add_index(table, args, array, labels, kind, scores)
    console.print(table)
    # Sums over positives are padded to another width, and so are rounded
    # differently; the ranks that they are made of are the same.
    apart = max(float((a - b).abs().nan_to_num().max()) for a, b in zip(*found))
    console.print(f'On disk and in memory: largest difference {apart:.1g}.')
    few = args.queries // 10
    _, least, _ = measure(lambda: on_disk(few))
    each_score = (on_disk_seconds - least) / ((args.queries - few) * args.gallery)
    return each_score, least / args.gallery - each_score * few


def add_index(table, args, array, labels, kind, scores):
    """Search the same queries by faiss."""
    import faiss

    from mmrank.evaluation.gallery_index import GalleryIndex, index_summary
    from mmrank.evaluation.retrieval_features import RetrievalFeatures

    faiss.omp_set_num_threads(args.threads)
    samples = RetrievalFeatures(array, labels, torch.arange(len(labels)) >= args.queries)
    index, built, peak = measure(lambda: GalleryIndex(samples.gallery_embeddings(), kind))
    summary, seconds, more = measure(lambda: index_summary(samples, index, (1,)))
    sign = '≈' if index.is_approximate else ''
    name = 'approximate_recall@1' if sign else 'recall@1'
    table.add_row(
        f'faiss {kind}, built in {built:.1f} CPU s',
        *(f'{seconds:.2f}', f'{seconds / scores:.2f}'),
        f'{max(peak, more) / 2**20:.0f}',
        f'{sign}{100 * summary[name]:.3f}',
        'not computed',
    )


if __name__ == '__main__':
    main()
