"""Classes that are made for a host class, and how they are pickled."""

from functools import cache

from mmrank.losses.registered import model_type


class MadeClass:
    """Mixin before a class of another package: :meth:`class_for` makes a class of both.

    Its objects can be pickled: ``torch.save(model)`` saves classes by name, which such a class does
    not have, so it is made again.
    """

    host: type
    made_from: tuple  # What :meth:`class_for` was called with
    name_prefix = 'Listwise'  # Before the name of the host, in the name of the class
    doc_suffix = 'on a ranking loss'  # Behind the name of the host, in the docstring

    @classmethod
    def class_for(cls, host: type, before: tuple = (), after: tuple = ()) -> type:
        """The class ``<prefix><host>``, one and the same for every call.

        ``before`` and ``after`` are further mixins around this one.
        """
        return _made(cls, host, before, after)

    def __reduce_ex__(self, protocol: int) -> tuple:
        state = super().__reduce_ex__(max(protocol, 2))[2]
        return _empty, self.made_from, state


@cache
def _made(mixin: type[MadeClass], host: type, before: tuple, after: tuple) -> type:
    content = dict(
        __doc__=f'{host.__name__} {mixin.doc_suffix}.',
        __module__=mixin.__module__,
        host=host,
        made_from=(mixin, host, before, after),
    )
    return type(f'{mixin.name_prefix}{host.__name__}', (*before, mixin, *after, host), content)


def _empty(*made_from) -> object:
    """An object without content, which pickle fills."""
    made = _made(*made_from)
    return made.__new__(made)


def host_class(field: str, named: str | type, example: str) -> type:
    """Class that a config names as the host in ``field``; a KeyError if not registered."""
    host = model_type(named)
    if not isinstance(host, type):
        what = f'{field}={named!r} is not registered as a class; write it with its scope'
        raise KeyError(f'{what}, as in {example!r}, and install that package')
    return host
