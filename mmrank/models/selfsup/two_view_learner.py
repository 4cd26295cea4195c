"""Registry entry of the algorithm that imports mmpretrain on first use."""

from mmrank.registry import MODELS


@MODELS.register_module()
def TwoViewLearner(*args, **kwargs):
    """Build a ``TwoViewSelfSupervisor``.

    A builder stands in the registry, not the class: the class derives from
    mmpretrain's, and importing mmpretrain here would break users without it.

    Args:
        *args: As for the class.
        **kwargs: As for the class.

    Returns:
        A :class:`mmrank.models.selfsup.two_view_self_supervisor.\
TwoViewSelfSupervisor`.

    Raises:
        ImportError: If mmpretrain is not installed.
    """
    try:
        from .two_view_self_supervisor import TwoViewSelfSupervisor
    except ModuleNotFoundError as error:
        if (error.name or '').partition('.')[0] != 'mmpretrain':
            raise
        raise ImportError(
            "type='mmrank.TwoViewLearner' needs mmpretrain, which is not "
            'installed. Fix: `mim install mmpretrain`, or see the README for '
            'the reference stack.'
        ) from error
    return TwoViewSelfSupervisor(*args, **kwargs)
