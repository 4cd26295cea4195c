"""Which texts are hard negatives of an image, by iSogCLR and CLIP: figures 1, 3 and 6 of the paper.

    python tools/research/pairs/hard_negatives.py isogclr=CONFIG,CHECKPOINT clip=CONFIG,CHECKPOINT

The first model has a temperature for each pair; the images have its largest and its smallest one,
in place of the paper's kitten and bridge. Written to the out dir: weights.png
(similarities to random texts of the training set, and the optimal weights p* of eq. 6),
pairs.png (t-SNE of images and texts, the hottest and the coldest marked), and
hard_negatives.csv (the texts of the largest weights).
"""

import sys
from pathlib import Path

import numpy as np
import torch
from mmengine.dataset import Compose
from mmengine.registry import DATASETS
from rich.console import Console
from scipy.special import softmax
from sklearn.manifold import TSNE

from mmrank.cli.config_options import add_trust_option
from mmrank.cli.options import tool_parser
from mmrank.datasets.one_size import one_size_collate
from mmrank.errors import UserError, show_user_errors
from mmrank.files import write_csv_atomically
from mmrank.pictures.figures import new_panels, save
from mmrank.pictures.palette import colour
from mmrank.pictures.temperatures import extreme_samples, read_temperatures
from mmrank.runners.config import check_packages, read_config
from mmrank.runners.models import trained_model

#: Images at a time, hard negatives in the table, and marked pairs of each kind on the map.
BATCH = 100
SHOWN = 5
MARKED = 10
#: Random pairs, besides the marked ones.
NEGATIVES = 1000


def embed(cfg, model, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(n, D) images, (n, D) texts and the texts of samples of the training set."""
    dataset = DATASETS.build(dict(cfg.train_dataloader.dataset, pipeline=[]))
    pipeline = Compose(cfg.test_dataloader.dataset.pipeline)
    images = []
    texts = []
    words = []
    for start in range(0, len(rows), BATCH):
        items = [pipeline(dataset.get_data_info(int(i))) for i in rows[start : start + BATCH]]
        with torch.no_grad():
            found = model.test_step(one_size_collate(items))
        images += [x.image_feature.cpu() for x in found]
        texts += [x.text_feature[0].cpu() for x in found]
        words += [x.get('text') for x in found]
    return torch.stack(images).numpy(), torch.stack(texts).numpy(), words


@show_user_errors(OSError, ValueError, ImportError)
def main() -> None:
    parser = tool_parser(__doc__, out_dir=Path('work_dirs/hard_negatives'))
    parser.add_argument('models', nargs='+', metavar='NAME=CONFIG,CHECKPOINT')
    add_trust_option(parser)
    args = parser.parse_args()
    out = args.out_dir
    models = {}
    for word in args.models:
        name, _, files = word.partition('=')
        config, _, checkpoint = files.partition(',')
        if not checkpoint:
            raise UserError(f'{word!r} is not a model. Fix: NAME=CONFIG,CHECKPOINT')
        models[name] = config, checkpoint
    first = next(iter(models))
    kind = read_temperatures(models[first][1], trust=args.trust_checkpoint)[0]
    hot, cold = extreme_samples(kind, MARKED)
    others = np.random.default_rng(0).permutation(np.flatnonzero(kind.visited))
    others = others[~np.isin(others, [*hot, *cold])][:NEGATIVES]
    rows = np.concatenate([hot, cold, others])
    anchors = {'largest temperature': 0, 'smallest temperature': len(hot)}
    figure, axes = new_panels(2, len(models), 3.8, 2.8)
    lines = [['model', 'image', 'own text', 'temperature', 'weight', 'negative']]
    for column, (name, (config, checkpoint)) in enumerate(models.items()):
        cfg = read_config(config)
        check_packages(cfg)
        model = trained_model(cfg, checkpoint, trust=args.trust_checkpoint)
        images, texts, words = embed(cfg, model, rows)
        loss = model.head.loss_module
        for number, (anchor, place) in enumerate(anchors.items()):
            cosines = images[place] @ texts[len(hot) + len(cold) :].T
            is_individual = getattr(loss, 'learn_temperature', False)
            tau = float(loss.states()[0].tau[rows[place]] if is_individual else loss.temperature())
            weights = softmax((cosines - images[place] @ texts[place]) / tau)
            label = f'{anchor}, τ = {tau:.3g}'
            axes[0, column].hist(cosines, 50, color=colour(number), alpha=0.6, label=label)
            axes[1, column].plot(np.sort(weights)[::-1], color=colour(number), label=label)
            for i in np.argsort(-weights)[:SHOWN]:
                text = words[len(hot) + len(cold) + i]
                lines.append([name, anchor, words[place], f'{tau:.4g}', f'{weights[i]:.4g}', text])
        axes[0, column].set(title=name, xlabel='similarity to a random text', ylabel='texts')
        axes[0, column].legend(fontsize=7)
        axes[1, column].set(xlabel='negative', ylabel='optimal weight', xscale='log')
        if name == first:
            plane = TSNE(metric='cosine', init='random', random_state=0).fit_transform(
                np.concatenate([images, texts])
            )
    written = [
        save(figure, out / 'weights.png'),
        write_csv_atomically(lines, out / 'hard_negatives.csv'),
    ]
    figure, axes = new_panels(1, 1, 5.0, 4.2)
    axis = axes[0, 0]
    for part, marker, label in ((0, 'o', 'images'), (1, '^', 'texts')):
        own = plane[part * len(rows) : (part + 1) * len(rows)]
        axis.scatter(*own.T, s=6, marker=marker, color='#bbbbbb', label=label)
        ends = (('hottest', 0, len(hot)), ('coldest', len(hot), len(hot) + len(cold)))
        for shade, (end, begin, stop) in enumerate(ends):
            axis.scatter(
                *own[begin:stop].T, s=24, marker=marker, color=colour(shade), label=f'{end} {label}'
            )
    axis.legend(fontsize=7)
    axis.set(xticks=[], yticks=[])
    written.append(save(figure, out / 'pairs.png'))
    for path in written:
        Console().print(f'wrote {path}', markup=False, highlight=False, soft_wrap=True)


if __name__ == '__main__':
    sys.exit(main())
