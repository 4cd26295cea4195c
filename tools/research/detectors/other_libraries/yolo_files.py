"""A data set in the form of COCO as the text files that YOLO's trainers read."""

import json
import shutil
from pathlib import Path

import yaml

SPLITS = ('train', 'val', 'test')


def write_yolo_files(source: Path, folder: Path) -> list[str]:
    """Write ``data.yaml``, images and labels of each split; the names of the classes."""
    for split in SPLITS:
        document = json.loads((source / f'annotations/{split}.json').read_text('utf-8'))
        categories = sorted(document['categories'], key=lambda x: x['id'])
        number = {x['id']: i for i, x in enumerate(categories)}
        for kind in ('images', 'labels'):
            (folder / kind / split).mkdir(parents=True, exist_ok=True)
        rows = {x['id']: [] for x in document['images']}
        sizes = {x['id']: (x['width'], x['height']) for x in document['images']}
        for item in document['annotations']:
            width, height = sizes[item['image_id']]
            x, y, w, h = item['bbox']
            box = (x + w / 2) / width, (y + h / 2) / height, w / width, h / height
            text = ' '.join(f'{min(max(value, 0), 1):.6f}' for value in box)
            rows[item['image_id']].append(f'{number[item["category_id"]]} {text}')
        for image in document['images']:
            name = image['file_name']
            shutil.copy(source / 'images' / name, folder / 'images' / split / name)
            label = folder / 'labels' / split / Path(name).with_suffix('.txt')
            label.write_text('\n'.join(rows[image['id']]), 'utf-8')
    names = [x['name'] for x in categories]
    paths = {split: f'images/{split}' for split in SPLITS}
    content = dict(path=str(folder.resolve()), **paths, nc=len(names), names=names)
    (folder / 'data.yaml').write_text(yaml.safe_dump(content), 'utf-8')
    return names
