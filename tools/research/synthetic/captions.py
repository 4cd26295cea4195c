"""Made-up captions: what is known of an image, put into templates."""

from collections.abc import Mapping

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
_CLASS_TEMPLATES = (
    '{article} {name}',
    'a photo of {article} {name}',
    'a {tone} photo of {article} {name}',
    '{article} {name} on {colour}',
    'a {tone} picture of {article} {name} on {colour}',
)
_OBJECT_TEMPLATES = (
    '{objects}',
    'a photo of {objects}',
    'a {tone} photo of {objects}',
    '{objects} on {colour}',
    'a {tone} picture of {objects} on {colour}',
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


def class_captions(
    name: str, image: np.ndarray, number: int, rng: np.random.Generator
) -> list[str]:
    """Write captions of an image of one class."""
    tone, colour = describe_image(image)
    captions = []
    for template in _draw(_CLASS_TEMPLATES, number, rng):
        words = SYNONYMS.get(name, (name,))
        word = words[rng.integers(len(words))].replace('_', ' ')
        captions.append(
            template.format(article=_article(word), name=word, tone=tone, colour=colour)
        )
    return captions


def object_captions(
    counts: Mapping[str, int], image: np.ndarray, number: int, rng: np.random.Generator
) -> list[str]:
    """Write captions that count the objects of an image."""
    if not counts:
        raise ValueError('an image without objects has no caption')
    tone, colour = describe_image(image)
    captions = []
    for template in _draw(_OBJECT_TEMPLATES, number, rng):
        kinds = list(counts)
        parts = [_counted(kinds[i], counts[kinds[i]]) for i in rng.permutation(len(kinds))]
        head, last = ', '.join(parts[:-1]), parts[-1]
        objects = f'{head} and {last}' if head else last
        captions.append(template.format(objects=objects, tone=tone, colour=colour))
    return captions


def _draw(templates: tuple[str, ...], number: int, rng: np.random.Generator) -> list[str]:
    if not 1 <= number <= len(templates):
        raise ValueError(f'number of captions must be 1 to {len(templates)}, got {number}')
    return [templates[i] for i in rng.permutation(len(templates))[:number]]


def _article(word: str) -> str:
    return 'an' if word[0] in 'aeiou' else 'a'


def _counted(name: str, count: int) -> str:
    if count == 1:
        return f'{_article(name)} {name}'
    number = _NUMBERS[count] if count < len(_NUMBERS) else 'many'
    if name == 'person':
        return f'{number} people'
    ending = 'es' if name.endswith(('s', 'sh', 'ch', 'x')) else 's'
    return f'{number} {name}{ending}'
