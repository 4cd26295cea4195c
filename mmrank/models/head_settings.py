"""Settings of a loss that its detector head decides."""

from mmrank.losses.loss_type import with_num_classes


def with_head_settings(loss_cls: dict, num_classes: int | None) -> dict:
    """Config of a loss, completed with the settings of its detector head.

    Args:
        loss_cls: Config of the loss.
        num_classes: Number of classes of the head, None if it is not set.

    Returns:
        A copy with ``use_sigmoid=True`` and, for losses of mmrank that take it, ``num_classes``.
        Values of the config take precedence.

    Raises:
        KeyError: If the loss is not registered.
    """
    config = with_num_classes('loss_cls', loss_cls, num_classes)
    return {'use_sigmoid': True, **config}
