r"""Write the lists of images that mmpretrain.CustomDataset reads.

    python tools/dataset_converters/image_list.py folders data/imagenet/train \
        imagenet100.txt data/imagenet/meta/train100.txt
    python tools/dataset_converters/image_list.py inaturalist train2018.json \
        data/inaturalist2018/train.txt

`folders` lists the images of some of the class folders of a data set, such as the 100 classes of
ImageNet-100: FOLDER/<class>/*, and a file with one class a line, whose order numbers the classes.
`inaturalist` lists the images of one of the published annotation files. A line of OUT is `path
label`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from mmrank.annotations.read import read_coco_json
from mmrank.cli.options import tool_parser
from mmrank.errors import UserError, show_user_errors
from mmrank.files import check_output, path_fault, write_atomically

IMAGES = ('.jpg', '.jpeg', '.png', '.bmp', '.webp')


def list_folders(folder: Path, classes: Path) -> Iterator[tuple[str, int]]:
    """Yield path and label of the images of the class folders that a file names, one a line."""
    try:
        lines = classes.read_text(encoding='utf-8-sig').splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f'{classes} is not UTF-8 text: {error}. Fix: save it as UTF-8') from error
    names = [line.split()[0] for line in lines if line.strip()]
    if len(set(names)) < len(names):
        twice = sorted({x for x in names if names.count(x) > 1})
        raise UserError(
            f'{classes} names classes twice: {twice}. Fix: remove the second line of each'
        )
    for label, name in enumerate(names):
        files = sorted(x.name for x in (folder / name).glob('*') if x.suffix.lower() in IMAGES)
        if not files:
            what = f'{folder / name} holds no image, but {classes} names the class {name!r}'
            raise UserError(what, 'unpack the data set there, or correct the name')
        for file in files:
            yield f'{name}/{file}', label


def list_inaturalist(annotations: Path) -> Iterator[tuple[str, int]]:
    """Yield path and category of the images of a file as iNaturalist publishes it."""
    try:
        content = read_coco_json(annotations)
        names = {x['id']: x['file_name'] for x in content['images']}
        pairs = [(x['image_id'], x['category_id']) for x in content['annotations']]
    except (KeyError, TypeError) as error:
        raise UserError(
            f'{annotations} is not as published: it needs images with id and '
            'file_name, and annotations with image_id and category_id '
            f'({type(error).__name__}: {error}). Fix: download it again'
        ) from error
    for image, name in names.items():
        if fault := path_fault(name):
            what = f'{annotations}: image id {image!r:.80}: file_name {name!r:.200} {fault}'
            raise UserError(what, 'correct or remove the image')
    labels = dict(pairs)
    if len(labels) < len(pairs) or labels.keys() != names.keys():
        raise UserError(
            f'{annotations} has {len(names)} images and {len(pairs)} annotations of {len(labels)} '
            'images, but each image needs exactly one. Fix: pass the published file unchanged'
        )
    for image, name in sorted(names.items(), key=lambda x: x[1]):
        yield name, labels[image]


@show_user_errors(OSError)
def main() -> None:
    parser = tool_parser(__doc__)
    kinds = parser.add_subparsers(dest='kind', required=True)
    folders = kinds.add_parser('folders', help='some classes of a tree')
    folders.add_argument('folder', metavar='FOLDER')
    folders.add_argument('classes', metavar='CLASSES', help='one a line')
    folders.add_argument('out', metavar='OUT')
    published = kinds.add_parser('inaturalist', help='a published JSON file')
    published.add_argument('annotations', metavar='JSON')
    published.add_argument('out', metavar='OUT')
    args = parser.parse_args()
    check_output(args.out, args.classes if args.kind == 'folders' else args.annotations)
    if args.kind == 'folders':
        items = [*list_folders(Path(args.folder), Path(args.classes))]
    else:
        items = [*list_inaturalist(Path(args.annotations))]
    out = Path(args.out)
    lines = [f'{path} {label}\n' for path, label in items]
    write_atomically(''.join(lines).encode(), out)
    classes = len({label for _, label in items})
    print(f'{out}: {len(items)} images of {classes} classes')


if __name__ == '__main__':
    sys.exit(main())
