"""Classes that are made for a host class, and how they are pickled."""

from collections.abc import Callable

from mmrank.losses.loss_type import model_type


class MadeClass:
    """Put before a class that a function makes: its objects can be pickled.

    ``torch.save(model)`` saves classes by their name, which such a class does not have; it is made
    again from its host.

    Attributes:
        host: Class that it was made for.
        made_by: Function of a module that makes it: ``made_by(host)``.
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
    """Make the class ``<prefix><host>``.

    Args:
        made_by: The cached function that calls this.
        host: The class that it serves.
        bases: Bases, a :class:`MadeClass` among them.
        doc: What it is, after the name of the host in its docstring.
        prefix: Put before the name of the host.

    Returns:
        The class.
    """
    return type(
        f'{prefix}{host.__name__}',
        bases,
        {
            '__doc__': f'{host.__name__} {doc}.',
            '__module__': made_by.__module__,
            'host': host,
            'made_by': staticmethod(made_by),
        },
    )


def _empty(made_by: Callable[[type], type], host: type) -> object:
    """An object without content, which pickle fills."""
    made = made_by(host)
    return made.__new__(made)


def host_class(field: str, named: str | type, example: str) -> type:
    """Class or function that a config names as the host.

    Args:
        field: Where the config names it, for the message.
        named: Registered name with its scope, or the class itself.
        example: A name that works there.

    Raises:
        KeyError: If it is not registered.
    """
    host = model_type(named)
    if host is None:
        raise KeyError(
            f'{field}={named!r} is not registered; write it with its scope, as in {example!r}, '
            'and install that package'
        )
    return host
