"""Names of classes in a file of their own."""

import json

import yaml

from mmrank.errors import UserError
from mmrank.files import read_text


def read_classes(path: str | None) -> list[str]:
    """Names by number: of a data.yaml of YOLO, a COCO file, or a text with a name a line."""
    if path is None:
        return []
    text = read_text(path, 'names of classes', 'save it as UTF-8')
    names: object = [x.strip() for x in text.split('\n') if x.strip()]
    try:
        if path.endswith(('.yaml', '.yml')):
            names = yaml.safe_load(text)['names']
        elif path.endswith('.json'):
            names = [x['name'] for x in json.loads(text)['categories']]
    except (yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        what = f'{path} cannot be read: {type(error).__name__}: {error}'
        fix = "a .yaml with 'names', a COCO file, or a text file with a name a line"
        raise UserError(what, fix) from error
    if isinstance(names, dict):
        numbered = {str(number): name for number, name in names.items()}
        numbers = [*map(str, range(len(names)))]
        lacking = [x for x in numbers if x not in numbered]
        if lacking:
            what = f'{path} has no name for {lacking[0]}, only for {", ".join(numbered):.200}'
            raise UserError(what, 'names of all numbers from 0 on')
        names = [numbered[x] for x in numbers]
    is_list = isinstance(names, list) and all(isinstance(x, str) for x in names)
    if not is_list or not names or len(set(names)) < len(names):
        fix = 'names, each once, in quotes where YAML reads another thing, such as "yes" or "1"'
        raise UserError(f'{path} holds {names!r:.200}', fix)
    return names
