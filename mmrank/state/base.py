"""Base of all that losses keep: a state is one line, and no constant is a buffer."""

import warnings
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmrank.autograd import can_sync, inside_transform, is_compiling
from mmrank.errors import UserError
from mmrank.tensors import check_index

ScoreRange = tuple[float | Tensor, float | Tensor]


class SavedState(nn.Module):
    """Module whose states are buffers, declared in one line each by :meth:`add_state`.

    A state is saved and moved with the model, but keeps its dtype: ``model.half()`` would round the
    small steps of a moving average away, and counts above 2048. mmengine logs a saved buffer of
    another shape and trains on with a fresh one, so ``load_state_dict`` raises ValueError there.
    All ranks hold equal states: a class joins what the batch says before its step. A forward of the
    training moves a state, see :attr:`moves`.
    """

    #: What in a config sets the shapes, for the message.
    shape_settings: ClassVar[str] = 'num_classes'
    #: Whether it was said that a batch lies far outside of the declared range.
    warned_of_outlier = False

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[str, Tensor] = {}
        #: It moves with the module, so that a constant that is set later finds the device.
        self._place = torch.empty(0, device='cpu')

    @property
    def moves(self) -> bool:
        """:meth:`moves_now`, for whom it is not known."""
        return self.moves_now()

    def moves_now(self, on_host: bool | None = None) -> bool:
        """Whether the forward that runs now moves the state; UserError within ``torch.func``.

        One rule holds for every state: it moves in training mode with gradients enabled. Under
        ``torch.no_grad()`` or ``torch.inference_mode()`` a loss is only asked for its value, the
        same as in ``eval()``: validation leaves the state alone, even if ``eval()`` of the model
        does not reach the loss. A forward that activation checkpointing runs again does not move it
        either; its first pass does. ``on_host``: whether it is known that neither a compiler nor
        ``torch.func`` sees the call.
        """
        if not on_host and is_compiling():
            return self.training and torch.is_grad_enabled()
        # The first pass of ``torch.utils.checkpoint`` with ``use_reentrant=True`` has no gradients,
        # but as in each autograd function there are no forward-mode gradients either.
        is_value = torch._C._is_fwd_grad_enabled() or torch.is_inference_mode_enabled()
        is_training = self.training and (torch.is_grad_enabled() or not is_value)
        if not is_training or torch._C._current_graph_task_id() != -1:
            return False
        if not on_host and inside_transform():
            what = f'{type(self).__name__} would move within torch.func, which keeps nothing'
            fix = 'loss.eval() there, for the value and gradient with the state as it is'
            raise UserError(what, fix)
        return True

    def add_state(
        self,
        name: str,
        shape: tuple[int, ...],
        start: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Declare a state. A count is of ``torch.float64``: averaged models leave integers out."""
        self.register_buffer(name, torch.full(shape, start, dtype=dtype))

    def set_constant(self, name: str, values: Tensor) -> None:
        """Set a tensor of the CPU that no checkpoint holds, as an attribute.

        It moves with the module. A buffer would have no values after ``to_empty()``.
        """
        self._constants[name] = values
        setattr(self, name, values.to(self._place.device))

    def within_reach(
        self,
        batch: Tensor,
        usable: Tensor,
        mean: Tensor,
        seen: Tensor,
        score_range: ScoreRange,
        widths: float = 1.0,
        on_host: bool | None = None,
    ) -> Tensor:
        """Clip what a batch measured to what a declared score range explains; within, bit for bit.

        An average of weight 0.01 would need a thousand batches to forget a score of 1e6, of a
        broken image. ``widths`` of the range and the size of the ``mean`` are allowed, so that
        averages of scores far outside of the range move and return; where nothing was ``seen`` they
        are allowed around the range itself. The first clipped value is warned of where the
        host may look; a GPU must not wait.
        """
        low, high = score_range
        reach = widths * (high - low)
        free = torch.where(seen, reach + mean.abs(), reach)
        least = torch.where(seen, mean, low) - free
        most = torch.where(seen, mean, high) + free
        bounded = torch.maximum(torch.minimum(batch, most), least)
        clipped = usable & (bounded != batch)
        if on_host is None:
            on_host = can_sync(clipped)
        if on_host and not self.warned_of_outlier and clipped.any():
            self.warned_of_outlier = True
            warnings.warn(
                'a positive score of a batch lies far outside of what score_range explains; it was '
                'clipped before it was averaged. Look for a broken sample or a diverging model, or '
                'declare the range that the scores have. This is said once',
                stacklevel=2,
            )
        return bounded

    def _apply(self, fn, recurse=True):
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            moved = getattr(self, name)
            if moved.dtype != buffer.dtype:
                setattr(self, name, buffer.to(moved.device))
        self._place = fn(self._place)
        for name, values in self._constants.items():
            self.set_constant(name, values)
        return self

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs) -> None:
        for name, buffer in self.named_buffers(recurse=False):
            saved = state_dict.get(prefix + name)
            # Raised here: mmengine only logs what is put into `error_msgs`.
            if saved is not None and saved.shape != buffer.shape:
                raise ValueError(
                    f'{prefix}{name} of the checkpoint has {self._misfit(saved, buffer)}'
                )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _misfit(self, saved: Tensor, buffer: Tensor) -> str:
        return (
            f'shape {tuple(saved.shape)}, but the model has {tuple(buffer.shape)}: set '
            f'{self.shape_settings} as in the training of the checkpoint, or remove the key from '
            'the checkpoint to start with fresh values'
        )


def rows_of_lists(rows: Tensor | None, lists: int, size: int) -> Tensor | None:
    """(lists,) int64 rows of the lists in a state of ``size``; None: in order, or there is one.

    ValueError where the classes ``rows``, or the lists without them, do not fit.
    """
    if size == 1:
        return None
    if rows is not None:
        fix = 'num_classes=the number of classes of the training set'
        check_index('list_classes', rows, size, fix, shape=(lists,))
        return rows.long()
    if lists != size:
        what = f'the state is of {size} classes but the scores have {lists} lists'
        raise ValueError(f'{what}; set num_classes={lists}, or pass the class of each list')
    return None
