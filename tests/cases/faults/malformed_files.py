"""Makes malformed data files from good ones, the same for the same seed."""

import copy
import gzip
import io
import json
import random
import struct

import cv2
import numpy as np
from chest_xray_tree import FINDINGS, HEADER
from cifar_trees import CIFAR10_NAMES
from coco_document import coco_document

#: What is put in place of a good value.
NASTY = (
    *(None, True, False, 0, -1, 1.5, -0.0, 1e300, 1e39, 10**30, 10**400),
    *(float('nan'), float('inf'), '', ' ', '1', 'é', '\ud800', 'a\0b'),
    *('x' * 5000, '../x.png', '/etc/passwd', 'C:\\x', '\x1b[2J', 'a\nb'),
    *([], {}, [[]], {'id': 1}, [1, 2, 3, '4']),
)
TOKENS = (
    *(b'[' * 5000, b'{"a":' * 5000, b'9' * 5000, b'"', b'\\', b',', b'\t'),
    *(b'\0', b'\xff', b'\xe9', b'\xed\xa0\x80', b'\xef\xbb\xbf', b'\n\n'),
    *(b'\r', b'::', b' ', b'nan', b'-1', b'1e999', b'../', b'/', b'x' * 200_000),
    *(b'\xe2\x80\xa8', b'\x1a', b'#', b"'", b'-', b'0' * 300, b'/etc/passwd'),
)


class Call:
    """Pickles as a call of a function, whose result then takes a state."""

    def __init__(self, function, *args, state=None):
        self.call = function, args, state

    def __reduce__(self):
        return self.call


def good_files():
    """Content of a good file of each kind, by its name."""
    labels = ','.join(['1,0'] * 5)
    header = ','.join(['image', *(f'c{i}' for i in range(10))])
    inverse = ','.join(['0,1'] * 5)
    entries = ''.join(
        f'{i:08d}_000.png,{FINDINGS[i % 14]},0,{i},58,M,PA,2,2,0.1,0.1,\n' for i in range(20)
    )
    lines = [{'image': f'{i}.jpg', 'caption': [f'é {i}']} for i in range(9)]
    texts = {
        'coco.json': json.dumps(_coco()),
        'coco_captions.json': json.dumps(_captions()),
        'karpathy.json': json.dumps(_karpathy()),
        'captions.json': json.dumps(lines),
        'captions.jsonl': '\n'.join(map(json.dumps, lines)),
        'captions.tsv': 'image\tcaption\n' + 'a/b.jpg\ta dog\n' * 9,
        'pairs.csv': 'user,item,rating\n' + ''.join(f'{i % 7},"{i}",{i % 5}\n' for i in range(40)),
        'pairs.csv.gz': ''.join(f'{i % 7}, {i}\n' for i in range(40)),
        'split.csv': ''.join(f'{i % 7},{i}\n' for i in range(40)),
        'ratings.dat': ''.join(f'{i % 7}::{i}::5::9\n' for i in range(40)),
        'xmc.txt': '9 6 9\n' + ''.join(f'{i},8 0:1.5 3:2\n' for i in range(8)),
        'sop.txt': 'image_id class_id super_class_id path\n'
        + ''.join(f'{i} {i // 2} 1 chair/{i}.JPG\n' for i in range(20)),
        'vehicle.txt': ''.join(f'{i:07} {i // 3}\n' for i in range(20)),
        'inaturalist.txt': ''.join(f'x/Aves/{i}/{i}.jpg\n' for i in range(20)),
        'paths.txt': ''.join(f'a b/{i}.jpg\tcat\n' for i in range(20)),
        'labels.csv': f'{header}\na.jpg,{labels}\nb.jpg,{inverse}\n',
        'entries.csv': f'{HEADER}\n{entries}',
        'names.txt': '\n'.join(f'{i:08d}_000.png' for i in range(20)),
    }
    files = {name: text.encode() for name, text in texts.items()}
    files['pairs.csv.gz'] = gzip.compress(files['pairs.csv.gz'], mtime=0)
    files['train.npz'] = cifar_arrays()
    image = np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8)
    for suffix in ('.png', '.jpg', '.bmp', '.tif', '.webp', '.ppm'):
        files[f'image{suffix}'] = cv2.imencode(suffix, image)[1].tobytes()
    return files


def cifar_arrays(**changes):
    """An archive of 20 images of CIFAR-10; ``changes`` are other arrays."""
    arrays = dict(images=np.zeros((20, 8, 8, 3), np.uint8), labels=np.arange(20) % 10)
    file = io.BytesIO()
    np.savez(file, **{**arrays, 'classes': np.array(CIFAR10_NAMES), **changes})
    return file.getvalue()


def malformed(name, content, seed):
    """What a seed makes of the content of a file of :func:`good_files`."""
    rng = random.Random(f'{name} {seed}')
    if name.endswith('.gz'):
        damaged = damage_bytes(gzip.decompress(content), rng)
        packed = gzip.compress(damaged, mtime=0)
        return packed if rng.random() < 0.7 else damage_bytes(packed, rng)
    if name.endswith('.json') and rng.random() < 0.7:
        content = _damage_values(content, rng)
        if rng.random() < 0.8:
            return content
    return damage_bytes(content, rng)


def damage_bytes(content, rng):
    """Damage bytes, whatever they mean."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(content) + 1)
        end = min(len(content), place + rng.choice((1, 4, 40, 4000)))
        part = content[place:end]
        kind = rng.randrange(9)
        if kind == 0:
            part = bytes(x ^ (1 << rng.randrange(8)) for x in part[:8])
            part += content[place + 8 : end]
        elif kind == 1:
            part = b''
        elif kind == 2:
            part *= rng.choice((2, 20, 300))
        elif kind in (3, 4):
            part = rng.choice(TOKENS) + (part if kind == 3 else b'')
        elif kind == 5:
            part = rng.randbytes(len(part))
        elif kind == 6:
            return content[:place]
        elif kind == 7:
            number = rng.choice((0, 1, 2**16 - 1, 2**31 - 1, 2**32 - 1))
            part = struct.pack('<I', number) + part[4:]
        else:
            old, new = rng.choice(((b'\n', b'\r'), (b'\n', b''), (b',', b';'), (b' ', b'\xa0')))
            content, part = content.replace(old, new), b''
        content = content[:place] + part + content[end:]
    return content


def _damage_values(content, rng):
    """Damage a JSON document that stays JSON."""
    document = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        node, parents = document, []
        while isinstance(node, dict | list) and node and (not parents or rng.random() < 0.9):
            key = rng.choice([*(node if isinstance(node, dict) else range(len(node)))])
            parents.append((node, key))
            node = node[key]
        if not parents:  # all of it was removed
            break
        parent, key = parents[-1]
        kind = rng.randrange(3)
        if kind == 0:
            del parent[key]
        elif kind == 1:
            for _ in range(rng.choice((1, 20, 200))):
                parent[key] = [parent[key]]
        else:
            parent[key] = copy.deepcopy(rng.choice(NASTY))
    return json.dumps(document).encode()


def _coco():
    boxes = [(i % 6, 1 + i % 2, [i, 2, 10.5, 8]) for i in range(12)]
    document = coco_document(boxes, images=6, size=(30, 40), first=0)
    for i, annotation in enumerate(document['annotations']):
        annotation['iscrowd'] = i % 2
    return document


def _captions():
    images = [{'id': i, 'file_name': f'{i}.png'} for i in range(6)]
    annotations = [{'image_id': i % 6, 'caption': 'x'} for i in range(12)]
    return {'images': images, 'annotations': annotations}


def _karpathy():
    image = {'split': 'train', 'filename': 'a', 'sentences': [{'raw': 'x'}]}
    return {'images': [{**image, 'filename': f'{i}.jpg'} for i in range(6)]}
