"""Tiny CIFAR-like sets in the three forms; every image tells its number."""

import pickle

import cv2
import numpy as np

CIFAR10_NAMES = (
    *('airplane', 'automobile', 'bird', 'cat', 'deer'),
    *('dog', 'frog', 'horse', 'ship', 'truck'),
)
#: The parts' images a class.
PER_CLASS = {'train': 40, 'test': 10}


def coded_image(part, label, number, size=8):
    """(size, size, 3) RGB: red is the part, green the label, blue which."""
    colour = (200 if part == 'test' else 100, 10 * label, 5 * number)
    return np.full((size, size, 3), colour, np.uint8)


def decode(image):
    """Part, label and number of an image in RGB."""
    red, green, blue = (int(x) for x in image[0, 0])
    return ('test' if red == 200 else 'train', green // 10, blue // 5)


def every_image(per_class=PER_CLASS, num_classes=10):
    """All parts, labels and numbers, class by class."""
    return [
        (part, label, number)
        for part, count in per_class.items()
        for label in range(num_classes)
        for number in range(count)
    ]


def write_folders(root):
    """``train/<class>/<number>.png``, without a loss of colour."""
    for part, label, number in every_image():
        path = root / part / CIFAR10_NAMES[label] / f'{number:04d}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        image = coded_image(part, label, number)
        cv2.imwrite(str(path), image[..., ::-1])
    return root


def write_arrays(root, per_class=PER_CLASS, names=CIFAR10_NAMES, size=8):
    """``train.npz`` and ``test.npz``."""
    root.mkdir(parents=True, exist_ok=True)
    for part in per_class:
        own = [x for x in every_image(per_class, len(names)) if x[0] == part]
        np.savez(
            root / f'{part}.npz',
            images=np.stack([coded_image(*x, size=size) for x in own]),
            labels=np.array([label for _, label, _ in own]),
            classes=np.array(names),
        )
    return root


def write_pickles(root):
    """``cifar-10-batches-py/``, in mixed order; the MD5 sums are wrong."""
    folder = root / 'cifar-10-batches-py'
    folder.mkdir(parents=True)
    for part in PER_CLASS:
        own = [x for x in every_image() if x[0] == part]
        order = np.random.default_rng(0).permutation(len(own))
        names = ['test_batch']
        if part == 'train':
            names = [f'data_batch_{i}' for i in range(1, 6)]
        for name, places in zip(names, np.array_split(order, len(names))):
            images = [coded_image(*own[i], size=32) for i in places]
            data = np.stack(images).transpose(0, 3, 1, 2).reshape(-1, 3072)
            entry = {'data': data, 'labels': [own[i][1] for i in places]}
            (folder / name).write_bytes(pickle.dumps(entry))
    meta = pickle.dumps({'label_names': list(CIFAR10_NAMES)})
    (folder / 'batches.meta').write_bytes(meta)
    return root
