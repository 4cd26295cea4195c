r"""Find the images that a trained model takes for nearest to a picture.

  # in a folder of images
  python tools/analysis_tools/nearest_images.py CONFIG CHECKPOINT picture.jpg \ --gallery data/shop
      --top-k 5 --out nearest.png

  # in features that a test has kept (RetrievalMetric(out_file=...)): no
  # image of the gallery is embedded again
  python tools/analysis_tools/nearest_images.py CONFIG CHECKPOINT picture.jpg \ --features
      features.npz

  # in millions of them: the features stay in their file, and so do the lists
  # of an approximate index, which are made once, beside it
  python tools/analysis_tools/nearest_images.py CONFIG CHECKPOINT picture.jpg \ --features
      features.npz --index ivf

Images go through the pipeline of the config's test set. The picture itself
is left out of the gallery.

exit status: 0 shown, 2 wrong input (see the message).
"""

import argparse
import sys
from pathlib import Path

import torch
from PIL import Image, ImageOps
from rich.console import Console
from torch import Tensor

from mmrank.apis.entry_point import add_config_option, add_trust_option, apply_options, read_config
from mmrank.apis.models import trained_model
from mmrank.apis.nearest_images import NearImage, embed_images, images_in, nearest_images
from mmrank.errors import UserError, show_user_errors
from mmrank.evaluation.gallery_index import INDICES, GalleryIndex
from mmrank.evaluation.retrieval_features import load_features
from mmrank.functional import StoredEmbeddings
from mmrank.visualization.figures import fit_text, new_panels, save


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config of a retriever')
    parser.add_argument('checkpoint', help='.pth file of its training')
    parser.add_argument('image', help='the picture')
    gallery = parser.add_mutually_exclusive_group(required=True)
    gallery.add_argument('--gallery', help='folder of images to search')
    gallery.add_argument('--features', help='.npz file of features to search')
    parser.add_argument(
        '--top-k', type=int, default=10, help='images to find (default: %(default)s)'
    )
    parser.add_argument(
        '--index',
        choices=INDICES,
        help="search by faiss, pip install 'mmrank[faiss]': flat compares "
        'with all images, ivf with those near by, and may miss some '
        '(default: all images, in memory)',
    )
    parser.add_argument('--out', help='picture to write as well')
    add_config_option(parser)
    add_trust_option(parser)
    args = parser.parse_args()
    if args.top_k < 1:
        parser.error(f'--top-k is {args.top_k}; it must be at least 1')
    return args


def draw(image: str, found: list[NearImage], path: str) -> Path:
    """Write the picture and what was found, side by side."""
    figure, axes = new_panels(1, 1 + len(found), 1.5, 1.8)
    titles = ['the picture', *(f'{near.score:.3f}' for near in found)]
    paths = [image, *(near.path for near in found)]
    for axis, title, file in zip(axes[0], titles, paths):
        with Image.open(file) as opened:
            pixels = ImageOps.exif_transpose(opened).convert('RGB')
            pixels.thumbnail((256, 256))
        axis.imshow(pixels)
        axis.set_title(title, fontsize=9)
        axis.text(
            0.5,
            -0.04,
            fit_text('/'.join(Path(file).parts[-2:]), 1.4, 7),
            fontsize=7,
            ha='center',
            va='top',
            transform=axis.transAxes,
        )
        axis.set_axis_off()
    return save(figure, path)


def make_index(args: argparse.Namespace, gallery: Tensor | StoredEmbeddings) -> GalleryIndex:
    """An index over the gallery; kept beside the features, if there are."""
    path = None
    if args.features and args.index == 'ivf':
        path = Path(args.features).with_suffix('.ivf.faiss')
        if path.is_file() and is_older(path, args.features):
            path.unlink()
    return GalleryIndex(gallery, args.index, path=path)


def is_older(path: Path, other: str) -> bool:
    """Whether a file was written before another one."""
    return path.stat().st_mtime_ns < Path(other).stat().st_mtime_ns


@show_user_errors(OSError, ValueError, ImportError)
def main() -> None:
    """Search."""
    args = parse_args()
    cfg = read_config(args.config)
    apply_options(cfg, args.cfg_options)
    if not cfg.get('test_dataloader'):
        raise UserError(
            f'{args.config} has no test_dataloader, whose pipeline reads the '
            'images.\n  Fix: pass the config of the training'
        )
    console = Console()
    model = trained_model(cfg, args.checkpoint, trust=args.trust_checkpoint)
    pipeline = cfg.test_dataloader.dataset.pipeline
    (query,) = torch.cat(list(embed_images(model, pipeline, [args.image])))
    if args.features:
        kept = load_features(args.features, stored=args.index is not None)
        if kept.paths is None:
            raise UserError(
                f'{args.features} has no image files. Fix: write it with '
                "RetrievalMetric(out_file='features.npz')"
            )
        gallery = kept.gallery_embeddings()
        paths = [kept.paths[i] for i in kept.rows_of_gallery().tolist()]
    else:
        paths = images_in(args.gallery)
        with console.status(f'Embedding {len(paths)} images'):
            gallery = torch.cat(list(embed_images(model, pipeline, paths)))
    picture = Path(args.image)
    # Looking up each of a million files takes long.
    names = {picture.name, picture.resolve().name}

    def is_picture(path: str) -> bool:
        return Path(path).name in names and Path(path).resolve() == picture.resolve()

    own = sum(map(is_picture, paths))
    if own == len(paths):
        raise UserError('the gallery has no other image than the picture')
    index = None
    if args.index is not None:
        index = make_index(args, gallery)
    found = nearest_images(query, gallery, paths, args.top_k + own, index)
    found = [near for near in found if not is_picture(near.path)][: args.top_k]
    if index is not None and index.is_approximate:
        print('An approximate search, which may have missed some.')
    print('rank  similarity  image')
    for rank, near in enumerate(found, 1):
        print(f'{rank:4}  {near.score:10.4f}  {near.path}')
    if args.out:
        print(f'Wrote {draw(args.image, found, args.out)}')


if __name__ == '__main__':
    sys.exit(main())
