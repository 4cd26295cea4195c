"""Numbers that are kept for every sample of a data set."""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from mmrank.autograd import inside_backward, is_compiling
from mmrank.checks import check_count, one_of
from mmrank.distributed import all_gather_rows
from mmrank.errors import UserError, UserTypeError
from mmrank.tensors import check_index

from .row_route import ShardRows
from .rows_in_flight import RowsInFlight
from .sharding import Shard, ShardedState

SIZE_FIX = '; set it to the number of samples in the training set'
# What brings the rows of a batch; on the device of the model they are there.
_BRINGS = {'device': None, 'host': RowsInFlight, 'sharded': ShardRows}


class SampleState(ShardedState):
    """Dense table with one row per quantity, by sample index.

    The table is saved with the module, one (size,) tensor per quantity, but on purpose it is not a
    buffer: mmengine's ``SyncBuffersHook`` would average it over ranks, ``DistributedDataParallel``
    send it around, and ``model.half()`` round it. All ranks store the same numbers.

    With ``storage='host'`` the table stays in host memory; the entries of a batch travel, and
    neither side waits, see :class:`~.rows_in_flight.RowsInFlight`. Pass the indices as a CPU
    tensor. With ``storage='sharded'`` each of W ranks holds every W-th sample, see
    :class:`~.row_route.ShardRows`: the numbers are the same as in a whole table, bit for bit. All
    ranks have to call the methods in the same order, in evaluation as well.

    Args:
        size: Number of samples in the training set.
        initial: Quantities and the number that all samples start with.
        storage: ``device``: where the model is. ``host``. ``sharded``: spread over the ranks.
        load_state: False resets the state when a checkpoint is loaded: for a model that continues
            with other data.
    """

    def __init__(
        self,
        size: int,
        initial: Mapping[str, float],
        storage: str = 'device',
        load_state: bool = True,
    ) -> None:
        check_count('num_samples', size, fix=SIZE_FIX)
        one_of('storage', storage, _BRINGS)
        super().__init__(size, storage == 'sharded')
        self.size = size
        self.names = tuple(initial)
        self.storage = storage
        self.load_state = load_state
        device = 'cpu' if storage == 'host' else None  # also of a model that is built on meta
        self._columns = []
        for value in initial.values():
            column = torch.full((self.shard.rows,), value, dtype=torch.float32, device=device)
            self._columns.append(column)
        self._rows = _BRINGS[storage] and _BRINGS[storage]()
        #: Indices and entries of the last :meth:`fetch` in training.
        self._last: tuple = (None, None)

    def __getstate__(self) -> dict:
        # Copies and pickles cannot carry what is on its way.
        self.flush()
        return self.__dict__ | dict(_rows=self._rows and type(self._rows)(), _last=(None, None))

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        if self.storage != 'host':
            # A model may be cast, the table only moves.
            device = fn(torch.empty(0, device=self.device)).device
            # What has no values yet gets them from a checkpoint, as buffers do.
            self._columns = [
                torch.empty_like(x, device=device) if x.is_meta else x.to(device)
                for x in self._columns
            ]
        return self

    @property
    def device(self) -> torch.device:
        """Where the table is."""
        return self._columns[0].device

    @property
    def num_bytes(self) -> int:
        """Memory of the table, on this process."""
        return sum(x.nbytes for x in self._columns)

    @property
    def table(self) -> Tensor:
        """(quantities, size) float32; a copy. Of a shard its rows."""
        self.flush()
        return torch.stack(self._columns)

    def column(self, name: str) -> Tensor:
        """(size,) values of a quantity; the state itself. Of a shard its rows."""
        self.flush()
        return self._columns[self.names.index(name)]

    def gathered(self, name: str) -> Tensor:
        """(size,) values of a quantity, of all ranks; all have to call it."""
        column = self.column(name)
        group = self.group
        if group is None:
            return column
        most = -(-self.size // self.shard.parts)
        own = pad(column, (0, most - column.numel()))
        parts = [torch.empty_like(own) for _ in range(self.shard.parts)]
        dist.all_gather(parts, own, group=group)
        return torch.stack(parts, dim=1).flatten()[: self.size]

    def own_rows(self) -> dict[str, Tensor]:
        self.flush()
        return dict(zip(self.names, self._columns))

    def load_rows(self, saved: Shard, rows: Mapping[str, Tensor]) -> None:
        self.flush()
        if self._rows is not None:
            self._rows.forget()
        super().load_rows(saved, rows)

    def refuse_rows(self, key: str, shape: Sequence[int]) -> None:
        raise ValueError(
            f'{key} of the checkpoint has {math.prod(shape)} samples, but num_samples={self.size}: '
            'the checkpoint is of another training set. Train on the same data to resume; '
            'with other data set load_state=False of the loss to start with fresh per-sample values'
        )

    def prefetch(self, ids: Tensor, device: torch.device) -> None:
        """Start the next :meth:`fetch` of (n,) ``ids`` on the host, if the entries have to travel.

        Call it as soon as the indices of a batch are known; for shards pass :meth:`fetch` the same
        object. Raises TypeError or ValueError for indices that do not fit.
        """
        if self._rows is not None and ids.device.type == 'cpu':
            check_sample_ids(ids, ids.numel(), self.size)
            self._rows.prefetch(self, ids, device)

    def fetch(self, ids: Tensor, device: torch.device) -> Tensor:
        """(quantities, n) float32 entries of (n,) checked indices, repeated or not; a copy.

        A forward that activation checkpointing runs again gets what the first one got: the table
        has moved since. Raises UserError in training, if the rows of a checkpoint were never
        loaded, and in such a forward of another batch than the last one.
        """
        if self.training and inside_backward():
            return self._fetched_before(ids)
        moves = self.moves
        if moves and (self.spread or self._awaited):
            self.before_training()
        found = (
            self.read(ids, device) if self._rows is None else self._rows.fetch(self, ids, device)
        )
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

    def joined(self, ids, entries, news, counts, group) -> tuple[Tensor, Tensor, Tensor]:
        """Bring together the (k, n) float64 ``news`` of each sample that was fetched last.

        Returns ``ids``, ``entries`` and ``news`` in float64: of all ranks of ``group``, which have
        ``counts`` rows, or of the rows of its shard on each; for :meth:`store`.
        """
        if self.spread and self.group is not None:
            return self._rows.joined(self, news)
        if group is None:
            return ids, entries.double(), news
        rows = torch.cat([ids[None].double(), entries.double(), news])
        rows = all_gather_rows(rows.t(), counts, group).t()
        return rows[0].long(), rows[1 : 1 + len(entries)], rows[1 + len(entries) :]

    def store(self, ids: Tensor, entries: Tensor) -> None:
        """Write (quantities, n) entries of (n,) ids; what is repeated has equal entries."""
        entries = entries.float()
        if self._rows is not None:
            self._rows.store(self, ids, entries)
        else:
            self.write(ids, entries)

    def flush(self) -> None:
        """Write what is on its way; a look-up that is, starts again."""
        if self._rows is not None:
            self._rows.flush(self)

    def read(self, ids: Tensor, device: torch.device) -> Tensor:
        """(quantities, n) float32 entries as the table has them."""
        ids = ids.to(self.device).long() // self.shard.parts
        return torch.stack([x[ids] for x in self._columns]).to(device)

    def write(self, ids: Tensor, entries: Tensor) -> None:
        """Set entries of the table."""
        ids = ids.to(self.device).long() // self.shard.parts
        for column, values in zip(self._columns, entries.to(self.device)):
            column[ids] = values.to(column.dtype)

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        if self.load_state:
            if self._rows is not None:
                self._rows.forget()
            super()._load_from_state_dict(state_dict, prefix, *args)


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
