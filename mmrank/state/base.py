"""Base of state that is kept in buffers, and the check of its rows."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from mmrank.autograd import TrainingState
from mmrank.errors import UserError
from mmrank.tensors import check_index

#: Key of a state that earlier versions saved in files beside the checkpoint; what is said of it.
SHARDS_KEY = 'shards'
ROWS_ELSEWHERE = (
    'it keeps rows of state in .shard files beside it, which are read no longer. Fix: resume it '
    "with the version of mmrank that saved it and storage='device', and save; for fresh values "
    'load_state=False of the loss, or remove the key'
)


class SavedState(TrainingState):
    """Module whose buffers keep their dtype, and whose saved shapes have to fit.

    ``model.half()`` must not round the state: the small steps of a moving average would vanish, and
    so would counts above 2048. mmengine logs a saved buffer of another shape and trains on with a
    fresh one; a resumed training would then not be the one that was interrupted. So
    ``load_state_dict`` raises ValueError if a shape differs.
    """

    #: What in a config sets the shapes, for the message.
    shape_settings: ClassVar[str] = 'num_classes'

    def __init__(self) -> None:
        super().__init__()
        #: Values of buffers on the meta device, see :meth:`set_unsaved`.
        self._for_later: dict[str, Tensor] = {}

    def set_unsaved(self, name: str, values: Tensor) -> None:
        """Set a buffer that no checkpoint holds; of a model without values, once it has them."""
        before = getattr(self, name, values)
        setattr(self, name, values.to(before.device))
        if before.is_meta:
            self._for_later[name] = values

    def _apply(self, fn, recurse=True):
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            now = getattr(self, name)
            if buffer.is_meta and not now.is_meta:
                setattr(self, name, self._for_later.pop(name, now).to(now.device, buffer.dtype))
            elif now.dtype != buffer.dtype:
                setattr(self, name, buffer.to(now.device))
        return self

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        refuse_rows_elsewhere(state_dict, prefix)
        for name, buffer in self.named_buffers(recurse=False):
            saved = state_dict.get(prefix + name)
            # Raised here: mmengine only logs what is put into `error_msgs`.
            if saved is not None and saved.shape != buffer.shape:
                raise ValueError(
                    f'{prefix}{name} of the checkpoint has shape {tuple(saved.shape)}, but the '
                    f'model has {tuple(buffer.shape)}: set {self.shape_settings} as in the '
                    'training of the checkpoint, or remove the key from the checkpoint to start '
                    'with fresh values'
                )
        super()._load_from_state_dict(state_dict, prefix, *args)


def refuse_rows_elsewhere(state_dict: Mapping, prefix: str) -> None:
    """Refuse, by a UserError, a saved state whose rows are in ``.shard`` files."""
    if prefix + SHARDS_KEY in state_dict:
        raise UserError(f'{prefix}{SHARDS_KEY} of the checkpoint: {ROWS_ELSEWHERE}')


def check_rows(name: str, rows: Tensor, lists: int, size: int) -> None:
    """Check (lists,) rows of a state of ``size``; see :func:`check_index`."""
    fix = 'num_classes=the number of classes of the training set'
    check_index(name, rows, size, fix, shape=(lists,))
