"""Compares a model with the training set that the running training uses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mmrank.errors import UserError

try:
    from mmengine.logging import MessageHub
except ModuleNotFoundError as error:
    if (error.name or '').partition('.')[0] != 'mmengine':
        raise
    MessageHub = None

#: Of the hub of messages: mmengine's runner notes the first, samplers of mmrank the second.
_METAINFO = 'dataset_meta'
_BATCH = 'mmrank_batch'
#: Noted by mmengine's runner, too.
_ITERATIONS = 'max_iters'


class DrawnBatch(NamedTuple):
    """What a sampler of whole batches, by its name, yields for one to each process."""

    sampler: str
    size: int
    processes: int

    def note(self) -> None:
        """Tell the heads of the running training."""
        hub = _hub()
        if hub is not None:
            hub.update_info(_BATCH, self, resumed=False)

    def check(self, size: int) -> None:
        """Refuse, by a UserError, a data loader of another ``batch_size`` than the sampler."""
        if size != self.size:
            raise UserError(
                f'train_dataloader.batch_size={size}, but {self.sampler} draws batches of '
                f'{self.size} indices for each of {self.processes} processes. Fix: '
                f'train_dataloader.batch_size={self.size}, or change the size of the batch in '
                'train_dataloader.sampler, which counts over all processes'
            )


class TrainingSet:
    """What the running training has noted of its data, each read once.

    mmengine's ``RuntimeInfoHook`` notes the ``metainfo`` before the first iteration. Make one of
    these with the model, so that an earlier training's is not taken. Without mmengine nothing is
    known.
    """

    def __init__(self) -> None:
        self._metainfo = _noted(_METAINFO)
        self._batch = _noted(_BATCH)
        self._earlier = _hub() if _noted(_ITERATIONS) else None

    def __reduce__(self) -> tuple:
        # A copy of the model may train on other data.
        return TrainingSet, ()

    def metainfo(self) -> Mapping:
        """What the training set states, the first time that it is known."""
        noted = _noted(_METAINFO)
        if noted is None or noted is self._metainfo:
            return {}
        self._metainfo = noted
        return noted

    def has_several_classes(self) -> bool:
        """Whether the training set is known to have more than one class; it stays to be read."""
        noted = _noted(_METAINFO)
        is_new = noted is not None and noted is not self._metainfo
        return is_new and len(_class_names(noted) or ()) > 1

    def iterations(self) -> int:
        """Iterations of mmengine's runner from the first to the last; 0 in another loop."""
        return 0 if _hub() is self._earlier else _noted(_ITERATIONS) or 0

    def check_classes(self, num_classes: int | None, where: str, *, binary: bool = False) -> None:
        """Refuse, by a UserError, another number of classes than the training set has.

        ``num_classes=None`` is not compared; where ``binary``, one class may stand for itself and
        the rest.
        """
        names = _class_names(self.metainfo())
        if names is None or num_classes is None:
            return
        if len(names) == num_classes or (binary and num_classes == 1 and len(names) == 2):
            return
        shown = ', '.join(map(str, names[:6])) + ', ...' * (len(names) > 6)
        raise UserError(
            f'num_classes={num_classes} of {where}, but the training set has {len(names)} classes '
            f'({shown}). Fix: set num_classes={len(names)} of the head; or, if the classes are '
            'wrong, metainfo=dict(classes=(...)) of the data sets'
        )

    def check_batch(self, size: int) -> None:
        """Refuse, by a UserError, a batch of another size than the sampler has drawn.

        A loop of your own may split a batch: only mmengine's runner is checked.
        """
        noted = _noted(_BATCH)
        if noted is None or noted is self._batch or _noted(_METAINFO) is None:
            return
        self._batch = noted
        noted.check(size)


def _class_names(metainfo: Mapping) -> Sequence | None:
    names = metainfo.get('classes')
    return None if isinstance(names, str) else names


def _noted(key: str) -> Any:
    hub = _hub()
    return None if hub is None else hub.get_info(key)


def _hub() -> Any:
    """The hub of messages; None without mmengine, whose runner notes there."""
    return None if MessageHub is None else MessageHub.get_current_instance()
