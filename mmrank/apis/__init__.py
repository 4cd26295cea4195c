"""Building blocks of the command-line tools, and released models by name."""

__all__ = ['load_model', 'released_models']


def __getattr__(name: str):
    # Only when one is used: both import what all models need.
    if name in __all__:
        from . import models

        return getattr(models, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
