"""Compares a model with the training set that the running training uses."""

from collections.abc import Mapping

from mmengine.logging import MessageHub

from mmrank.errors import UserError


class TrainingSet:
    """What mmengine's runner has noted of the training set, read once.

    The runner hands no data set to the model. Its ``RuntimeInfoHook``, one of
    the default hooks, notes the ``metainfo`` of the training set before the
    first iteration. Make one of these with the model: what an earlier
    training of the process has left is then not taken for this one.
    """

    def __init__(self) -> None:
        self._earlier = _noted()

    def __reduce__(self) -> tuple:
        # A copy of the model may train on other data.
        return TrainingSet, ()

    def metainfo(self) -> Mapping:
        """What the training set states, the first time that it is known."""
        noted = _noted()
        if noted is None or noted is self._earlier:
            return {}
        self._earlier = noted
        return noted

    def check_classes(self, num_classes: int | None, where: str) -> None:
        """Refuse another number of classes than the training set has.

        Args:
            num_classes: Of the head; None is not compared.
            where: What has it, for the message.

        Raises:
            UserError: If they differ.
        """
        names = self.metainfo().get('classes')
        if names is None or num_classes is None or isinstance(names, str):
            return
        if len(names) != num_classes:
            shown = ', '.join(map(str, names[:6]))
            shown += ', ...' if len(names) > 6 else ''
            raise UserError(
                f'num_classes={num_classes} of {where}, but the training set '
                f'has {len(names)} classes ({shown}). Fix: set num_classes='
                f'{len(names)} of the head; or, if the classes are wrong, '
                'metainfo=dict(classes=(...)) of the data sets'
            )


def _noted() -> Mapping | None:
    return MessageHub.get_current_instance().get_info('dataset_meta')
