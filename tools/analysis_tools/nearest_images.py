r"""Find the images that a trained model takes for nearest to a picture.

  python tools/analysis_tools/nearest_images.py CONFIG CHECKPOINT picture.jpg \
      --gallery data/shop --top-k 5 --out nearest.png

Images go through the pipeline of the config's test set. The picture itself is left out.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from mmengine.dataset import Compose, default_collate
from PIL import Image, ImageOps
from rich.console import Console
from torch import Tensor, nn

from mmrank.annotations.images import IMAGE_SUFFIXES, image_fault
from mmrank.cli.config_options import add_config_option, add_trust_option
from mmrank.cli.options import check_outputs, parse_at_least, tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.functional import nearest_in_gallery
from mmrank.pictures.figures import fit_text, new_panels, save
from mmrank.runners.config import apply_options, read_config
from mmrank.runners.models import trained_model

_BATCH = 32


def embed_images(
    model: nn.Module, pipeline: Sequence[Mapping], paths: Sequence[str]
) -> Iterator[Tensor]:
    """Yield (n, D) embeddings of image files, batch by batch, on the CPU."""
    transform = Compose(pipeline)
    for start in range(0, len(paths), _BATCH):
        batch = []
        for path in paths[start : start + _BATCH]:
            fault = image_fault(path)
            if fault is not None:
                what = f'image {path}: {fault}'
                raise UserError(what, 'copy or convert it again, or take it out of the folder')
            # A label is needed by some transforms, and never looked at.
            batch.append(transform(dict(img_path=path, gt_label=0)))
        with torch.no_grad():
            samples = model.test_step(default_collate(batch))
        if not hasattr(samples[0], 'feature'):
            what = f'model.type is {type(model).__name__}, whose predict gives no feature'
            fix = "pass a config of a type='mmrank.EmbeddingRetriever' or 'mmrank.TwoViewLearner'"
            raise UserError(what, fix)
        yield torch.stack([sample.feature.cpu() for sample in samples])


def draw(image: str, found: dict[str, float], path: str) -> Path:
    """Write the picture and what was found, paths with their similarity, side by side."""
    figure, axes = new_panels(1, 1 + len(found), 1.5, 1.8)
    titles = ['the picture', *(f'{score:.3f}' for score in found.values())]
    for axis, title, file in zip(axes[0], titles, [image, *found]):
        with Image.open(file) as opened:
            pixels = ImageOps.exif_transpose(opened).convert('RGB')
            pixels.thumbnail((256, 256))
        axis.imshow(pixels)
        axis.set_title(title, fontsize=9)
        name = fit_text('/'.join(Path(file).parts[-2:]), 1.4, 7)
        axis.text(0.5, -0.04, name, fontsize=7, ha='center', va='top', transform=axis.transAxes)
        axis.set_axis_off()
    return save(figure, path, has_photos=True)


@show_user_errors(OSError, ValueError, ImportError)
def main() -> None:
    parser = tool_parser(__doc__, top_k=(10, 'images to find'))
    parser.add_argument('config', help='config of a retriever')
    parser.add_argument('checkpoint', help='.pth file of its training')
    parser.add_argument('image', help='the picture')
    parser.add_argument('--gallery', required=True, help='folder of images to search')
    parser.add_argument('--out', help='picture to write as well')
    add_config_option(parser)
    add_trust_option(parser)
    args = parse_at_least(parser, top_k=1)
    check_outputs(args, 'out')
    cfg = read_config(args.config)
    apply_options(cfg, args.cfg_options)
    if not cfg.get('test_dataloader'):
        what = f'{args.config} has no test_dataloader, whose pipeline reads the images'
        raise UserError(what, 'pass the config of the training')
    console = Console()
    model = trained_model(cfg, args.checkpoint, trust=args.trust_checkpoint)
    pipeline = cfg.test_dataloader.dataset.pipeline
    query = torch.cat(list(embed_images(model, pipeline, [args.image])))
    files = sorted(path for path in Path(args.gallery).rglob('*') if path.is_file())
    paths = [str(path) for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    if not paths:
        what = f'gallery {args.gallery!r} has no image ({", ".join(IMAGE_SUFFIXES)})'
        raise UserError(what, 'pass a folder of images')
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
    scores, rows = nearest_in_gallery(query, gallery, args.top_k + own)
    near = zip([str(paths[row]) for row in rows[0].tolist()], scores[0].tolist())
    found = dict([(path, score) for path, score in near if not is_picture(path)][: args.top_k])
    print('rank  similarity  image')
    for rank, (path, score) in enumerate(found.items(), 1):
        print(f'{rank:4}  {score:10.4f}  {path}')
    if args.out:
        print(f'Wrote {draw(args.image, found, args.out)}')


if __name__ == '__main__':
    sys.exit(main())
