"""Numbers that are kept for every sample of a data set."""

import torch
from torch import Tensor, nn

from .rows_in_flight import RowsInFlight

STORAGES = ('device', 'host')
_HALF_RANGE = (
    torch.finfo(torch.float16).min,
    torch.finfo(torch.float16).max,
)


class SampleState(nn.Module):
    """Dense table with one row per quantity, by sample index.

    Rows are float32, or float16 where set in ``dtypes``. The table is saved
    with the module, but on purpose it is not a buffer: mmengine's
    ``SyncBuffersHook`` would average it over ranks,
    ``DistributedDataParallel`` send it around and refuse it on the host
    beside a model on a GPU, and ``model.half()`` round it. All ranks hold the
    whole table and store the same numbers, so there is nothing to
    synchronise. A checkpoint has one (size,) tensor per quantity.

    With ``storage='host'`` the table stays in host memory, regardless of
    ``model.to``: 4 or 2 bytes per sample and quantity. Only the entries of a
    batch travel, through pinned memory, and neither side waits:
    :meth:`prefetch` sends them to the GPU while it is busy with other things,
    what :meth:`store` sends back is written once it has come, and a look-up
    that is ahead of it gets the new entries on the GPU; see
    :class:`RowsInFlight`. Pass the indices as a CPU tensor: the host has to
    wait for those on a GPU.

    Args:
        size: Number of samples in the training set.
        initial: Quantities and the number that all samples start with.
        storage: ``device``: where the model is. ``host``.
        load_state: False resets the state when a checkpoint is loaded: for a
            model that continues with other data.
        dtypes: Quantities that are not float32, and their dtype.

    Raises:
        ValueError: On a parameter out of range.
    """

    def __init__(
        self,
        size: int,
        initial: dict[str, float],
        storage: str = 'device',
        load_state: bool = True,
        dtypes: dict[str, torch.dtype] | None = None,
    ) -> None:
        super().__init__()
        if not (type(size) is int and size >= 1):
            raise ValueError(
                f'num_samples must be an int >= 1, got {size!r}; set it to '
                'the number of samples in the training set'
            )
        if storage not in STORAGES:
            raise ValueError(
                f'storage={storage!r} is unknown; use one of {STORAGES}'
            )
        self.size, self.names = size, tuple(initial)
        self.storage, self.load_state = storage, load_state
        dtypes = dtypes or {}
        self._columns = [
            torch.full((size,), value, dtype=dtypes.get(name, torch.float32))
            for name, value in initial.items()
        ]
        self._in_flight = RowsInFlight()

    def __getstate__(self) -> dict:
        # Copies and pickles cannot carry what is on its way.
        self.flush()
        return self.__dict__.copy()

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        if self.storage == 'device':
            # A model may be cast, the table only moves.
            device = fn(torch.empty(0, device=self.device)).device
            self._columns = [x.to(device) for x in self._columns]
        return self

    def extra_repr(self) -> str:
        return (
            f'size={self.size}, quantities={self.names}, '
            f'storage={self.storage!r}'
        )

    @property
    def device(self) -> torch.device:
        """Where the table is."""
        return self._columns[0].device

    @property
    def num_bytes(self) -> int:
        """Memory of the table."""
        return sum(x.nbytes for x in self._columns)

    @property
    def table(self) -> Tensor:
        """(quantities, size) float32; a copy."""
        self.flush()
        return torch.stack([x.float() for x in self._columns])

    def column(self, name: str) -> Tensor:
        """(size,) values of a quantity; the state itself, not a copy."""
        self.flush()
        return self._columns[self.names.index(name)]

    def check_ids(self, ids: Tensor, count: int) -> None:
        """Refuse indices that do not fit the table.

        Args:
            ids: What should be (count,) integers in ``[0, size)``.
            count: Number of samples in the batch.

        Raises:
            TypeError: If they are no integers.
            ValueError: If there are more or fewer than ``count``, or one is
                out of range; on a GPU the latter is a device-side assertion.
        """
        check_sample_ids(ids, count)
        if ids.numel() == 0:
            return
        fits = ((ids >= 0) & (ids < self.size)).all()
        if ids.device.type != 'cpu':
            torch._assert_async(fits)
        elif not fits:
            raise ValueError(
                f'sample_idx holds indices from {int(ids.min())} to '
                f'{int(ids.max())}, but num_samples={self.size}; set '
                'num_samples to the length of the training set, and let its '
                'samples be counted from 0'
            )

    def prefetch(self, ids: Tensor, device: torch.device) -> None:
        """Start the next :meth:`fetch`, if the entries have to travel.

        Call it as soon as the indices of a batch are known. Without it, or
        for other indices, :meth:`fetch` starts itself.

        Args:
            ids: (n,) indices, on the host; where they are on a GPU, nothing
                is started.
            device: Where :meth:`fetch` is to put the entries.

        Raises:
            TypeError: If they are no integers.
            ValueError: If one is out of range.
        """
        if self._is_far(device) and ids.device.type == 'cpu':
            self.check_ids(ids, ids.numel())
            self._ask(ids, device)

    def fetch(self, ids: Tensor, device: torch.device) -> Tensor:
        """Entries of a batch.

        Args:
            ids: (n,) checked indices, repeated or not.
            device: Where to put them.

        Returns:
            (quantities, n) float32, a copy.
        """
        if self._is_far(device):
            if not self._in_flight.asked(ids):
                self._ask(ids.to(self.device), device)
            return self._in_flight.answer()
        self.flush()
        return self._read(ids.to(self.device)).to(device)

    def store(self, ids: Tensor, entries: Tensor) -> None:
        """Write entries back.

        Args:
            ids: (n,) checked indices; what is repeated has equal entries.
            entries: (quantities, n).
        """
        entries = self._rounded(entries)
        if self._is_far(entries.device):
            self._in_flight.send(ids.to(entries.device), entries)
            return
        self.flush()
        self._write(ids.to(self.device), entries.to(self.device))

    def flush(self) -> None:
        """Write what is on its way; a look-up that is, starts again."""
        if self._in_flight.writes or self._in_flight.look_up:
            self._take_in(wait=True)

    def _is_far(self, device: torch.device) -> bool:
        return self.device.type == 'cpu' and device.type == 'cuda'

    def _ask(self, ids: Tensor, device: torch.device) -> None:
        self._take_in(wait=False)
        self._in_flight.ask(ids, self._read(ids), device)

    def _take_in(self, wait: bool) -> None:
        for ids, entries in self._in_flight.arrived(wait):
            self._write(ids, entries)

    def _read(self, ids: Tensor) -> Tensor:
        ids = ids.long()
        return torch.stack([x[ids].float() for x in self._columns])

    def _write(self, ids: Tensor, entries: Tensor) -> None:
        ids = ids.long()
        for column, values in zip(self._columns, entries):
            column[ids] = values.to(column.dtype)

    def _rounded(self, entries: Tensor) -> Tensor:
        """(quantities, n) float32 as they come out of the table again."""
        entries = entries.float()
        if all(x.dtype == torch.float32 for x in self._columns):
            return entries
        # An infinite momentum would stay for ever.
        rows = [
            x.clamp(*_HALF_RANGE).half().float()
            if column.dtype == torch.float16
            else x
            for column, x in zip(self._columns, entries)
        ]
        return torch.stack(rows)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self.names:
            destination[prefix + name] = self.column(name)

    def _load_from_state_dict(
        self,
        state_dict,
        prefix,
        local_metadata,
        strict,
        missing_keys,
        unexpected_keys,
        error_msgs,
    ) -> None:
        if not self.load_state:
            return
        found = {n: state_dict.get(prefix + n) for n in self.names}
        for name, values in found.items():
            # Raised here: mmengine only logs what is put into error_msgs,
            # and would train on with a fresh table.
            if values is not None and values.shape != (self.size,):
                raise ValueError(
                    f'{prefix}{name} of the checkpoint has '
                    f'{values.numel()} samples, but num_samples={self.size}: '
                    'the training set is not that of the checkpoint. Train '
                    'on the same data to resume; with other data set '
                    'load_state=False of the loss to start with fresh '
                    'per-sample values'
                )
        self._in_flight = RowsInFlight()
        for name, values in found.items():
            if values is None:
                missing_keys.append(prefix + name)
            else:
                self.column(name).copy_(values)


def check_sample_ids(ids: Tensor, count: int) -> None:
    """Refuse what is no list of sample indices.

    Args:
        ids: What should be (count,) integers.
        count: Number of samples in the batch.

    Raises:
        TypeError: If it is no tensor of integers.
        ValueError: If there are more or fewer than ``count``.
    """
    if not isinstance(ids, Tensor):
        raise TypeError(
            'sample_idx must be a tensor of integers, got '
            f'{type(ids).__name__}; call torch.as_tensor(sample_idx)'
        )
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(
            f'sample_idx must be integers, got {ids.dtype}; call '
            'sample_idx.long()'
        )
    if ids.shape != (count,):
        raise ValueError(
            f'sample_idx must be ({count},), one for each sample of the '
            f'batch, got shape {tuple(ids.shape)}'
        )
