"""Classes that are made for a host class, and how they are pickled."""

from collections.abc import Callable

from mmrank.losses.loss_type import model_type


class MadeClass:
    """Put before a class that ``made_by`` makes for ``host``: its objects can be pickled.

    ``torch.save(model)`` saves classes by name, which such a class does not have; it is made again.
    """

    host: type
    made_by: Callable[[type], type]

    def __reduce_ex__(self, protocol: int) -> tuple:
        state = super().__reduce_ex__(max(protocol, 2))[2]
        return _empty, (self.made_by, self.host), state


def make_class(
    made_by: Callable[[type], type],
    host: type,
    bases: tuple[type, ...],
    doc: str,
    prefix: str = 'Listwise',
) -> type:
    """Make the class ``<prefix><host>``; ``made_by`` is the cached function that calls this."""
    content = dict(__doc__=f'{host.__name__} {doc}.', __module__=made_by.__module__, host=host)
    return type(f'{prefix}{host.__name__}', bases, {**content, 'made_by': staticmethod(made_by)})


def _empty(made_by: Callable[[type], type], host: type) -> object:
    """An object without content, which pickle fills."""
    made = made_by(host)
    return made.__new__(made)


def host_class(field: str, named: str | type, example: str) -> type:
    """Class that a config names as the host in ``field``; a KeyError if not registered."""
    host = model_type(named)
    if host is None:
        raise KeyError(
            f'{field}={named!r} is not registered; write it with its scope, as in {example!r}, '
            'and install that package'
        )
    return host
