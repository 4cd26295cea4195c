"""Numbers that are kept for every sample of a data set."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mmrank.autograd import TrainingState, inside_backward, is_compiling
from mmrank.checks import check_count
from mmrank.errors import UserError, UserTypeError
from mmrank.tensors import check_index

from .base import refuse_rows_elsewhere

SIZE_FIX = '; set it to the number of samples in the training set'


class SampleState(TrainingState):
    """Dense table with one row per quantity, by sample index.

    The table is saved with the module, one (size,) tensor per quantity, but on purpose it is not a
    buffer: mmengine's ``SyncBuffersHook`` would average it over ranks, ``DistributedDataParallel``
    send it around, and ``model.half()`` round it. All ranks store the same numbers.

    Args:
        size: Number of samples in the training set.
        initial: Quantities and the number that all samples start with.
        load_state: False resets the state when a checkpoint is loaded: for a model that continues
            with other data.
    """

    def __init__(self, size: int, initial: Mapping[str, float], load_state: bool = True) -> None:
        check_count('num_samples', size, fix=SIZE_FIX)
        super().__init__()
        self.size = size
        self.names = tuple(initial)
        self.load_state = load_state
        self._columns = [torch.full((size,), x, dtype=torch.float32) for x in initial.values()]
        #: Indices and entries of the last :meth:`fetch` in training.
        self._last: tuple = (None, None)

    def __getstate__(self) -> dict:
        return self.__dict__ | dict(_last=(None, None))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        # A model may be cast, the table only moves.
        device = fn(torch.empty(0, device=self.device)).device
        # What has no values yet gets them from a checkpoint, as buffers do.
        self._columns = [
            torch.empty_like(x, device=device) if x.is_meta else x.to(device) for x in self._columns
        ]
        return self

    @property
    def device(self) -> torch.device:
        """Where the table is."""
        return self._columns[0].device

    @property
    def table(self) -> Tensor:
        """(quantities, size) float32; a copy."""
        return torch.stack(self._columns)

    def column(self, name: str) -> Tensor:
        """(size,) values of a quantity; the state itself."""
        return self._columns[self.names.index(name)]

    def fetch(self, ids: Tensor, device: torch.device) -> Tensor:
        """(quantities, n) float32 entries of (n,) checked indices, repeated or not; a copy.

        A forward that activation checkpointing runs again gets what the first one got: the table
        has moved since. Raises UserError in such a forward of another batch than the last one.
        """
        if self.training and inside_backward():
            return self._fetched_before(ids)
        moves = self.moves
        found = self.read(ids, device)
        if moves and not is_compiling():
            self._last = ids, found.clone()
        return found

    def _fetched_before(self, ids: Tensor) -> Tensor:
        last, found = self._last
        if last is None or not torch.equal(last, ids):
            raise UserError(
                'activation checkpointing runs the loss of an earlier batch again, whose state has '
                'moved since. Fix: one backward for each forward, or the loss outside of '
                'torch.utils.checkpoint'
            )
        return found.clone()

    def read(self, ids: Tensor, device: torch.device) -> Tensor:
        """(quantities, n) float32 entries as the table has them."""
        ids = ids.to(self.device).long()
        return torch.stack([x[ids] for x in self._columns]).to(device)

    def store(self, ids: Tensor, entries: Tensor) -> None:
        """Write (quantities, n) entries of (n,) ids; what is repeated has equal entries."""
        ids = ids.to(self.device).long()
        for column, values in zip(self._columns, entries.float().to(self.device)):
            column[ids] = values

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, column in zip(self.names, self._columns):
            destination[prefix + name] = column

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, *args
    ) -> None:
        if not self.load_state:
            return
        refuse_rows_elsewhere(state_dict, prefix)
        # Raised here: mmengine only logs what is put into error_msgs, and would train on with a
        # fresh table.
        for name in self.names:
            rows = state_dict.get(prefix + name)
            if rows is not None and rows.shape != (self.size,):
                raise ValueError(
                    f'{prefix}{name} of the checkpoint has {rows.numel()} samples, but '
                    f'num_samples={self.size}: the checkpoint is of another training set. Train '
                    'on the same data to resume; with other data set load_state=False of the loss '
                    'to start with fresh per-sample values'
                )
        keys = {prefix + name: column for name, column in zip(self.names, self._columns)}
        for key, column in keys.items():
            if key in state_dict:
                column.copy_(state_dict[key])
            else:
                missing_keys.append(key)
        rest = {k: v for k, v in state_dict.items() if k not in keys}
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing_keys, *args)


def check_sample_ids(ids: Tensor, count: int, size: int = 2**62) -> None:
    """Check that ``ids`` is a (count,) tensor of samples; see :func:`check_index`."""
    if not isinstance(ids, Tensor):
        raise UserTypeError(
            f'sample_idx must be a tensor of integers, got {type(ids).__name__}. Fix: '
            'torch.as_tensor(sample_idx)'
        )
    fix = (
        'num_samples=the length of the training set, whose samples are counted from 0, and one '
        'index for each sample of the batch'
    )
    check_index('sample_idx', ids, size, fix, shape=(count,))
