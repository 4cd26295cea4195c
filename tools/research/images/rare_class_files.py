"""Make a copy of a COCO data set in which a class is six times rarer.

    python tools/research/images/rare_class_files.py data/bccd Platelets 0.9 data/bccd_rare

Writes ``train_0.json``, ... of one sixth of the training images that hold the class and all others,
and ``train_0_repeated.json``, ... in which images stand as often as ClassBalancedDataset shows them
with that threshold. Validation and test files are the same; images are links.
"""

import json
import math
import shutil
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from mmrank.cli.options import tool_parser

#: How much rarer the class becomes.
RARER = 6


def kept_images(labels: list[Tensor], rare: int | None, seed: int) -> list[int]:
    """The images of a seed: one in six of those with the rare class, and all others."""
    holds = [i for i, own in enumerate(labels) if rare in own.tolist()]
    left_out = {*holds} - {*holds[seed % RARER :: RARER]}
    return [i for i in range(len(labels)) if i not in left_out]


def repeated(images: list[int], labels: list[Tensor], threshold: float) -> list[int]:
    """Images as often as mmengine's ClassBalancedDataset has them.

    A class in a share f of the images counts the root of ``threshold`` / f, at least 1; an image as
    often as the largest of its classes, rounded up.
    """
    classes = {i: {*labels[i].tolist()} for i in images}
    holding = Counter(x for own in classes.values() for x in own)
    factor = {x: max(1, (threshold * len(images) / n) ** 0.5) for x, n in holding.items()}
    return [i for i in images for _ in range(math.ceil(max(factor[x] for x in classes[i])))]


def subset(document: dict, images: list[int]) -> dict:
    """The document with these images, by position, each as often as it is named."""
    kept = [{**document['images'][i], 'id': number} for number, i in enumerate(images)]
    numbers = {}
    for number, i in enumerate(images):
        numbers.setdefault(document['images'][i]['id'], []).append(number)
    boxes = [
        {**box, 'image_id': number}
        for box in document['annotations']
        for number in numbers.get(box['image_id'], [])
    ]
    boxes = [{**box, 'id': number} for number, box in enumerate(boxes, 1)]
    return {**document, 'images': kept, 'annotations': boxes}


def main() -> None:
    parser = tool_parser(__doc__)
    parser.add_argument('data', type=Path, help='folder with annotations and images')
    parser.add_argument('rare', help='name of the class')
    parser.add_argument('threshold', type=float, help='oversample_thr of ClassBalancedDataset')
    parser.add_argument('out', type=Path, help='folder to write')
    args = parser.parse_args()
    folder = args.out / 'annotations'
    folder.mkdir(parents=True)
    data = args.data.resolve()
    for path in {x.parent for x in data.rglob('*') if x.suffix in ('.jpg', '.png')}:
        link = args.out / path.relative_to(data)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    for name in ('val.json', 'test.json'):
        shutil.copy(args.data / 'annotations' / name, folder)
    document = json.loads((args.data / 'annotations/train.json').read_text('utf-8'))
    (rare,) = [x['id'] for x in document['categories'] if x['name'] == args.rare]
    holding = {box['image_id'] for box in document['annotations']}
    document['images'] = [image for image in document['images'] if image['id'] in holding]
    own = {image['id']: [] for image in document['images']}
    for box in document['annotations']:
        own[box['image_id']].append(box['category_id'])
    labels = [torch.tensor(x, dtype=torch.long) for x in own.values()]
    for seed in range(RARER):
        kept = kept_images(labels, rare, seed)
        shown = repeated(kept, labels, args.threshold)
        for images, name in ((kept, f'train_{seed}'), (shown, f'train_{seed}_repeated')):
            (folder / f'{name}.json').write_text(json.dumps(subset(document, images)))
            print(f'{name}: {len(images)} images')


if __name__ == '__main__':
    main()
