"""Base of state whose rows may be spread over the processes."""

import warnings
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from mmrank.distributed import world_group
from mmrank.errors import UserError

from .shard import Shard

#: Key of a saved state whose rows are elsewhere: (2,) shards and rows.
SHARDS_KEY = 'shards'


class ShardedState(nn.Module):
    """Module with a table by row index, whole or one shard of it.

    Row i is on rank ``i mod W``. The rows of a shard are no buffers: ``DistributedDataParallel``
    would send those of rank 0 to the others, and mmengine's ``SyncBuffersHook`` average them.

    ``state_dict`` holds a whole table by the names of :meth:`own_rows`, and
    of a shard only how many there are, since mmengine and most loops save
    that of rank 0. The rows of a shard are saved apart: by ``mmrank.ShardedStateHook``, or
    :func:`mmrank.state.save_shard`. A whole table loads into shards and shards load into a whole
    table, of any number.

    Args:
        size: Rows of the whole table.
        spread: Whether each process has its shard only.

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
        self._awaited: set[int] = set()
        self._parts_there = 0

    def own_rows(self) -> dict[str, Tensor]:
        """(rows of the shard, ...) tensors by name; the state itself."""
        raise NotImplementedError

    def refuse_rows(self, key: str, shape: Sequence[int]) -> None:
        """Refuse a saved table of another shape.

        Args:
            key: Its key in the checkpoint.
            shape: Its shape; empty if there is none.

        Raises:
            ValueError: Always.
        """
        raise NotImplementedError

    @property
    def group(self):
        """Process group that the rows are spread over; None: all are here.

        Raises:
            UserError: If the processes are not those that the state was made for.
        """
        if not self.spread:
            return None
        group = world_group()
        now = Shard.of_this_process(self.shard.size)
        if now != self.shard:
            raise UserError(
                f'{type(self).__name__} was built as part {self.shard.part} '
                f'of {self.shard.parts}, but this is process {now.part} of '
                f"{now.parts}. With storage='sharded' build the loss after "
                'torch.distributed.init_process_group'
            )
        return group

    def before_training(self) -> None:
        """Refuse rows of a checkpoint that were never loaded.

        Warn, once, where nothing saves them.

        Raises:
            UserError: If rows were not loaded.
        """
        if not (self.shard.is_whole or self.is_saved):
            self.is_saved = True
            warnings.warn(
                f'{type(self).__name__} is spread over {self.shard.parts} '
                'processes, and nothing saves the rows of all: a checkpoint '
                'of this training cannot be resumed. Fix: custom_hooks=['
                "dict(type='mmrank.ShardedStateHook')]; in a loop of your own "
                'mmrank.state.save_shard, or is_saved=True of the state',
                stacklevel=2,
            )
        self.refuse_missing_rows()

    def refuse_missing_rows(self) -> None:
        """Refuse rows of a checkpoint that were never loaded.

        Raises:
            UserError: If so.
        """
        if self._awaited:
            raise UserError(
                f'the checkpoint keeps the state of {type(self).__name__} in '
                f'{self._parts_there} files beside it, one of each process, '
                f'and {len(self._awaited)} of them were not loaded. Fix: '
                "custom_hooks=[dict(type='mmrank.ShardedStateHook')]; without "
                'mmengine mmrank.state.load_shards; to start with fresh '
                'values load_state=False'
            )

    @property
    def awaits_any(self) -> bool:
        """Whether rows of a checkpoint are still to be loaded."""
        return bool(self._awaited)

    def awaits(self, part: int) -> bool:
        """Whether rows of a saved shard are still to be loaded."""
        return part in self._awaited

    @torch.no_grad()
    def load_rows(self, saved: Shard, rows: Mapping[str, Tensor]) -> None:
        """Take what belongs here from a saved shard, or whole table.

        Args:
            saved: Which one.
            rows: Its :meth:`own_rows`.

        Raises:
            ValueError: If it is of another size, or a name is missing.
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
        saved = {n: state_dict.get(prefix + n) for n in own}
        shards = state_dict.get(prefix + SHARDS_KEY)
        self._awaited = set()
        # Raised here: mmengine only logs what is put into error_msgs, and would train on with a
        # fresh table.
        if shards is not None:
            parts, size = shards.tolist()
            if size != self.shard.size:
                self.refuse_rows(prefix + SHARDS_KEY, (size,))
            self._parts_there = parts
            self._awaited = {
                part
                for part in range(parts)
                if self.shard.common(Shard(size, part, parts)) is not None
            }
        else:
            for name, rows in saved.items():
                whole = self.shard.size, *own[name].shape[1:]
                if rows is not None and rows.shape != whole:
                    self.refuse_rows(prefix + name, rows.shape)
            for name, rows in saved.items():
                if rows is None:
                    missing_keys.append(prefix + name)
                else:
                    own[name].copy_(rows[self.shard.place])
        taken = {prefix + name for name in (*own, SHARDS_KEY)}
        lacking: list[str] = []
        super()._load_from_state_dict(
            {k: v for k, v in state_dict.items() if k not in taken},
            prefix,
            local_metadata,
            strict,
            lacking,
            unexpected_keys,
            error_msgs,
        )
        missing_keys += [key for key in lacking if key not in taken]


def sharded_states(model: nn.Module) -> dict[str, ShardedState]:
    """Modules with a table, whole or a shard, by name."""
    return {
        name: module for name, module in model.named_modules() if isinstance(module, ShardedState)
    }


def save_shard(model: nn.Module) -> dict[str, dict]:
    """What this process has to save beside ``model.state_dict()``.

    Args:
        model: A model or loss. All that is not spread is left out.

    Returns:
        By name of the module ``shard``, (size, part, parts), and ``rows``,
        the tensors by name; for ``torch.save`` to a file of this rank.
    """
    for state in sharded_states(model).values():
        state.is_saved = True
    return {
        name: dict(
            shard=[state.shard.size, state.shard.part, state.shard.parts],
            rows={k: v.detach() for k, v in state.own_rows().items()},
        )
        for name, state in sharded_states(model).items()
        if not state.shard.is_whole
    }


def load_shards(model: nn.Module, saved: Iterable[Mapping]) -> None:
    """Load what the processes of a training saved, however many they were.

    Call it after ``model.load_state_dict``. Shards that have nothing for this process are not
    touched: with ``torch.load(path, mmap=True)`` they are not even read.

    Args:
        model: A model or loss.
        saved: Of each process what :func:`save_shard` gave.

    Raises:
        ValueError: If a table is of another size.
        UserError: If a shard is missing.
    """
    states = sharded_states(model)
    for process in saved:
        for name, content in process.items():
            shard = Shard(*content['shard'])
            if name in states and states[name].awaits(shard.part):
                states[name].load_rows(shard, content['rows'])
    for state in states.values():
        state.refuse_missing_rows()


def keys_of_other_form(state: ShardedState, prefix: str, here: Mapping, saved: Mapping) -> set[str]:
    """Keys that differ only since one side has shards and the other none.

    Args:
        state: The state.
        prefix: Of its keys.
        here: The state of the model by key.
        saved: That of a checkpoint.

    Returns:
        All keys of the state if so; else none.
    """
    shards = prefix + SHARDS_KEY
    rows = {prefix + name for name in state.own_rows()}
    if shards in saved and shards not in here:
        return rows | {shards}
    if shards in here and shards not in saved and rows <= saved.keys():
        return rows | {shards}
    return set()
