"""Google-style docstrings of functions and classes made from others."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType


def sections(doc: str | None) -> dict[str, str]:
    """Split a docstring into its sections.

    Args:
        doc: Docstring, or None.

    Returns:
        Text by title (``Args``, ``Returns``, ...), in order; the text before the first title has
        the key ``''``.
    """
    found, title = {'': []}, ''
    for line in inspect.cleandoc(doc or '').splitlines():
        if line.endswith(':') and re.fullmatch(r'[A-Z]\w+:', line):
            title = line[:-1]
            found[title] = []
        else:
            found[title].append(line)
    return {key: '\n'.join(lines).strip('\n') for key, lines in found.items()}


@functools.cache  # a base is read once for each of its subclasses
def arguments(doc: str | None) -> Mapping[str, str]:
    """Split the ``Args`` section of a docstring.

    Args:
        doc: Docstring, or None.

    Returns:
        Indented entry by the name of the argument, in order; read-only.
    """
    entries = re.split(r'\n(?=    \S)', sections(doc).get('Args', ''))
    named = ((re.match(r'    \**(\w+)', entry), entry) for entry in entries)
    return MappingProxyType({x[1]: entry for x, entry in named if x})


def docstring(parts: dict[str, str]) -> str:
    """Join sections; the inverse of :func:`sections`.

    Args:
        parts: Text by title. Empty ones are left out.
    """
    return '\n\n'.join(
        f'{title}:\n{text}' if title else text for title, text in parts.items() if text
    )


def inherit_arguments(cls: type) -> None:
    """Add the arguments that only its bases describe to a class.

    Args:
        cls: A class whose ``Args`` section leaves out arguments of its signature. The section then
            follows the order of the signature.
    """
    if not cls.__doc__:  # python -OO
        return
    known = {}
    for owner in reversed(cls.__mro__):
        known |= arguments(owner.__doc__)
    parts = sections(cls.__doc__)
    taken = inspect.signature(cls).parameters
    text = '\n'.join(known[name] for name in taken if name in known)
    if 'Args' in parts:
        parts['Args'] = text
    else:
        # After the description, before Attributes and Raises.
        first = parts.pop('')
        parts = {'': first, 'Args': text, **parts}
    cls.__doc__ = docstring(parts)


def docstring_of_scores(
    function: Callable, of_positives: Sequence[str], skipped: Iterable[str]
) -> str | None:
    """Docstring of the form for score matrices of a ranking function.

    Args:
        function: See :func:`mmrank.functional.score_lists`.
        of_positives: Names of its arguments with a value for each positive.
        skipped: Names of the arguments that the form does not take.
    """
    if not function.__doc__:  # python -OO
        return None
    parts = sections(function.__doc__)
    summary, _, rest = parts[''].partition('\n\n')
    entries = {
        'scores': '    scores: (L, N) float scores.',
        'is_positive': '    is_positive: (L, N) bool or integer, nonzero = positive of its list.',
    }
    skipped = set(skipped)
    for name, text in arguments(function.__doc__).items():
        if name in of_positives:
            text = (
                f'    {name}: (L, N) floats, read at the positives; see\n'
                f'        :func:`{function.__name__}`.'
            )
        if name not in skipped:
            entries[name] = text
    entries['mask'] = '    mask: (L, N) bool, False for entries to ignore.'
    returns = '    What ``{0}`` returns for L lists, float64 for float64\n    scores, else float32.'
    form = (
        f'Form of :func:`{function.__name__}` for a score matrix. The lists are the\nclasses of a '
        'one-vs-all problem (``scores = logits.t()``) or the queries\nof a retrieval batch, where '
        '``mask`` leaves out the query itself.'
    )
    return docstring(
        {
            '': '\n\n'.join(x for x in (summary, form, rest) if x),
            'Args': '\n'.join(entries.values()),
            'Returns': returns.format(function.__name__),
            'Raises': parts.get('Raises', ''),
        }
    )
