"""State whose rows are spread over the processes: row i is on rank ``i mod W``.

Ours, and not ``DTensor`` with ``torch.distributed.checkpoint``: a DTensor cannot be read and
written by row index without gathering it, its files hold whole blocks of rows in a folder of its
own, not beside the ``.pth`` that names them and is whole only with them, and no process could tell
which rows of a checkpoint it still lacks (docs/pages/reliability.md, "State in shards").
"""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mmrank.autograd import TrainingState
from mmrank.distributed import world_group
from mmrank.errors import UserError

#: Key of a saved state whose rows are elsewhere: (2,) shards and rows.
SHARDS_KEY = 'shards'


@dataclass(frozen=True)
class Shard:
    """Every ``parts``-th row of a table of ``size``, from row ``part`` on; the rank of W.

    Neighbours in a data set are often visited together, such as the captions of an image, so they
    have different owners.

    Example:
        >>> Shard(7, 1, 3).rows  # 1 and 4
        2
        >>> Shard(7, 1, 3).common(Shard(7, 0, 2))  # row 4
        (slice(1, None, 2), slice(2, None, 3))
    """

    size: int
    part: int = 0
    parts: int = 1

    @classmethod
    def of_this_process(cls, size: int) -> 'Shard':
        """The shard of this rank; the whole table in a single process."""
        group = world_group()
        if group is None:
            return cls(size)
        return cls(size, dist.get_rank(group), dist.get_world_size(group))

    @property
    def rows(self) -> int:
        """Number of rows of the shard."""
        return len(range(self.part, self.size, self.parts))

    @property
    def is_whole(self) -> bool:
        """Whether that is the whole table."""
        return self.parts == 1

    @property
    def place(self) -> slice:
        """Where its rows are in the whole table."""
        return slice(self.part, None, self.parts)

    def common(self, other: 'Shard') -> tuple[slice, slice] | None:
        """Where rows of two shards of one table are in both, in one order; None without any."""
        step = math.lcm(self.parts, other.parts)
        rows = range(self.part, min(step, self.size), self.parts)
        first = next((row for row in rows if row % other.parts == other.part), None)
        if first is None:
            return None
        return (
            slice(first // self.parts, None, step // self.parts),
            slice(first // other.parts, None, step // other.parts),
        )


class ShardedState(TrainingState):
    """Module with a table of ``size`` rows, whole or (``spread``) one shard of it.

    The rows of a shard are not buffers: ``DistributedDataParallel`` would send rank 0's to the
    others, and mmengine's ``SyncBuffersHook`` average them.

    ``state_dict`` holds a whole table by the names of :meth:`own_rows`, and of a shard only how
    many there are, since mmengine and most loops save rank 0's. The rows of a shard are saved
    apart: by ``mmrank.ShardedStateHook``, or :func:`save_shard`. A whole table loads into shards
    and shards load into a whole table, of any number.

    Attributes:
        shard: The rows that this process has.
        is_saved: Whether anything saves the rows of a shard. Until then the first use in training
            warns.
    """

    def __init__(self, size: int, spread: bool) -> None:
        super().__init__()
        self.spread = spread
        self.shard = Shard.of_this_process(size) if spread else Shard(size)
        self.is_saved = False
        self._awaited: set[int] = set()  # saved shards with rows that are still to be loaded
        self._parts_there = 0

    def own_rows(self) -> dict[str, Tensor]:
        """(rows of the shard, ...) tensors by name; the state itself."""
        raise NotImplementedError

    def refuse_rows(self, key: str, shape: Sequence[int]) -> None:
        """Raise ValueError: the saved table ``key`` has another ``shape``, empty if none."""
        raise NotImplementedError

    @property
    def group(self):
        """Process group that the rows are spread over; None: all are here.

        Raises UserError if the processes are not those that the state was made for.
        """
        if not self.spread:
            return None
        now = Shard.of_this_process(self.shard.size)
        if now != self.shard:
            raise UserError(
                f'{type(self).__name__} was built as part {self.shard.part} of {self.shard.parts}, '
                f"but this is process {now.part} of {now.parts}. With storage='sharded' build the "
                'loss after torch.distributed.init_process_group'
            )
        return world_group()

    @property
    def awaits_any(self) -> bool:
        """Whether rows of a checkpoint are still to be loaded."""
        return bool(self._awaited)

    def before_training(self) -> None:
        """Refuse rows of a checkpoint that were not loaded; warn once where nothing saves them."""
        if not (self.shard.is_whole or self.is_saved):
            self.is_saved = True
            warnings.warn(
                f'{type(self).__name__} is spread over {self.shard.parts} processes, and nothing '
                'saves the rows of all: a checkpoint of this training cannot be resumed. Fix: '
                "custom_hooks=[dict(type='mmrank.ShardedStateHook')]; in a loop of your own "
                'mmrank.state.save_shard, or is_saved=True of the state',
                stacklevel=2,
            )
        self.refuse_missing_rows()

    def refuse_missing_rows(self) -> None:
        """Raise UserError if rows of a checkpoint were never loaded."""
        if self._awaited:
            raise UserError(
                f'the checkpoint keeps the state of {type(self).__name__} in {self._parts_there} '
                f'files beside it, one of each process, and {len(self._awaited)} of them were not '
                "loaded. Fix: custom_hooks=[dict(type='mmrank.ShardedStateHook')]; without "
                'mmengine mmrank.state.load_shards; to start with fresh values load_state=False'
            )

    @torch.no_grad()
    def load_rows(self, saved: Shard, rows: Mapping[str, Tensor]) -> None:
        """Take what belongs here from the :meth:`own_rows` of a saved shard or whole table.

        Raises ValueError if it is of another size, or a name is missing.
        """
        own = self.own_rows()
        for name, values in own.items():
            found = tuple(rows[name].shape) if name in rows else ()
            if found != (saved.rows, *values.shape[1:]):
                self.refuse_rows(name, found and (saved.size, *found[1:]))
            if saved.size != self.shard.size:
                self.refuse_rows(name, (saved.size, *found[1:]))
        common = self.shard.common(saved)
        if common is not None:
            here, there = common
            for name, values in own.items():
                values[here].copy_(rows[name][there])
        self._awaited.discard(saved.part)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self.shard.is_whole:
            destination[prefix + SHARDS_KEY] = torch.tensor([self.shard.parts, self.shard.size])
            return
        for name, rows in self.own_rows().items():
            destination[prefix + name] = rows

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        own = self.own_rows()
        shards = state_dict.get(prefix + SHARDS_KEY)
        self._awaited = set()
        # Raised here: mmengine only logs what is put into error_msgs, and would train on with a
        # fresh table.
        if shards is not None:
            parts, size = shards.tolist()
            if size != self.shard.size:
                self.refuse_rows(prefix + SHARDS_KEY, (size,))
            self._parts_there = parts
            for part in range(parts):
                if self.shard.common(Shard(size, part, parts)):
                    self._awaited.add(part)
        else:
            for name, values in own.items():
                rows = state_dict.get(prefix + name)
                whole = self.shard.size, *values.shape[1:]
                if rows is not None and rows.shape != whole:
                    self.refuse_rows(prefix + name, rows.shape)
            for name, values in own.items():
                rows = state_dict.get(prefix + name)
                if rows is None:
                    missing_keys.append(prefix + name)
                else:
                    values.copy_(rows[self.shard.place])
        taken = {prefix + name for name in (*own, SHARDS_KEY)}
        rest = {k: v for k, v in state_dict.items() if k not in taken}
        missing: list[str] = []
        super()._load_from_state_dict(
            rest, prefix, local_metadata, strict, missing, unexpected_keys, error_msgs
        )
        missing_keys += [key for key in missing if key not in taken]


def sharded_states(model: nn.Module) -> dict[str, ShardedState]:
    """Modules with a table, whole or a shard, by name."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, ShardedState):
            found[name] = module
    return found


def save_shard(model: nn.Module) -> dict[str, dict]:
    """What this process has to save in addition to ``model.state_dict()``, for a file of its own.

    Returns:
        By name of the module ``shard``, (size, part, parts), and ``rows``, the tensors by name; all
        that is not spread is left out.
    """
    content = {}
    for name, state in sharded_states(model).items():
        state.is_saved = True
        if not state.shard.is_whole:
            content[name] = dict(
                shard=[state.shard.size, state.shard.part, state.shard.parts],
                rows={k: v.detach() for k, v in state.own_rows().items()},
            )
    return content


def load_shards(model: nn.Module, saved: Iterable[Mapping]) -> None:
    """Load what the processes of a training saved, however many they were.

    Call it after ``model.load_state_dict``, with what :func:`save_shard` gave on each process.
    Shards that have nothing for this process are not touched: with ``torch.load(path, mmap=True)``
    they are not even read.

    Raises:
        ValueError: If a table is of another size.
        UserError: If a shard is missing.
    """
    states = sharded_states(model)
    for process in saved:
        for name, content in process.items():
            shard = Shard(*content['shard'])
            if name in states and shard.part in states[name]._awaited:
                states[name].load_rows(shard, content['rows'])
    for state in states.values():
        state.refuse_missing_rows()


def keys_of_other_form(state: ShardedState, prefix: str, here: Mapping, saved: Mapping) -> set[str]:
    """Keys of a state that differ only since one side, the model or ``saved``, has shards."""
    shards = prefix + SHARDS_KEY
    rows = {prefix + name for name in state.own_rows()}
    if shards in saved and shards not in here:
        return rows | {shards}
    if shards in here and shards not in saved and rows <= saved.keys():
        return rows | {shards}
    return set()
