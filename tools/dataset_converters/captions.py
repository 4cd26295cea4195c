"""Made-up captions: what is known of an image, put into templates."""

from collections.abc import Callable, Mapping

import numpy as np

#: Other words for classes of CIFAR-10.
SYNONYMS = {
    'airplane': ('airplane', 'plane'),
    'automobile': ('automobile', 'car'),
    'ship': ('ship', 'boat'),
}
#: Colours that a caption may name, in RGB.
COLOURS = {
    'black': (20, 20, 20),
    'grey': (128, 128, 128),
    'white': (235, 235, 235),
    'red': (170, 50, 50),
    'brown': (115, 85, 60),
    'yellow': (200, 180, 90),
    'green': (80, 120, 60),
    'blue': (70, 110, 170),
    'light blue': (150, 190, 225),
}
_NUMBERS = ('no', 'a', 'two', 'three', 'four', 'five')
_TEMPLATES = (
    '{what}',
    'a photo of {what}',
    'a {tone} photo of {what}',
    '{what} on {colour}',
    'a {tone} picture of {what} on {colour}',
)


def describe_image(image: np.ndarray) -> tuple[str, str]:
    """Describe the brightness of an image and the colour of its border."""
    image = image.astype(np.float64)
    light = image.mean()
    tone = 'dark' if light < 95 else 'bright' if light > 150 else 'plain'
    margin = max(1, min(image.shape[:2]) // 8)
    border = np.ones(image.shape[:2], dtype=bool)
    border[margin:-margin, margin:-margin] = False
    colour = np.median(image[border], axis=0)
    distances = np.abs(np.array(list(COLOURS.values())) - colour).sum(1)
    return tone, list(COLOURS)[int(distances.argmin())]


def class_words(name: str, rng: np.random.Generator) -> str:
    """The class of an image in words."""
    words = SYNONYMS.get(name, (name,))
    return _counted(words[rng.integers(len(words))].replace('_', ' '), 1)


def object_words(counts: Mapping[str, int], rng: np.random.Generator) -> str:
    """The objects of an image, by class, in words and in any order."""
    kinds = list(counts)
    *head, last = (_counted(kinds[i], counts[kinds[i]]) for i in rng.permutation(len(kinds)))
    return f'{", ".join(head)} and {last}' if head else last


def captions_of(
    describe: Callable[[np.random.Generator], str],
    image: np.ndarray,
    number: int,
    rng: np.random.Generator,
) -> list[str]:
    """Put what ``describe`` says of an image into some of the five templates."""
    tone, colour = describe_image(image)
    chosen = rng.permutation(len(_TEMPLATES))[:number]
    return [_TEMPLATES[i].format(what=describe(rng), tone=tone, colour=colour) for i in chosen]


def _counted(name: str, count: int) -> str:
    if count == 1:
        return f'{"an" if name[0] in "aeiou" else "a"} {name}'
    number = _NUMBERS[count] if count < len(_NUMBERS) else 'many'
    if name == 'person':
        return f'{number} people'
    ending = 'es' if name.endswith(('s', 'sh', 'ch', 'x')) else 's'
    return f'{number} {name}{ending}'
