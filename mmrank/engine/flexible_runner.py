"""``FlexibleRunner`` with whole checkpoints and a safe resume."""

import os
from typing import Any

from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.model import is_model_wrapper
from mmengine.runner import FlexibleRunner as _FlexibleRunner
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from mmrank.engine.resume.whole_checkpoint import whole_checkpoint
from mmrank.engine.runners import refuse_strategy
from mmrank.registry import RUNNERS


@RUNNERS.register_module()
class FlexibleRunner(_FlexibleRunner):
    """mmengine's ``FlexibleRunner`` that a kill at any moment cannot harm.

    A drop-in for ``runner_type='FlexibleRunner'``, which ``tools/train.py`` replaces by it:

    * A checkpoint gets its name when its content is on the disk: a file of ``SingleDeviceStrategy``
      or ``DDPStrategy``, a folder of :class:`~mmrank.engine.sharded.fsdp_strategy.FSDPStrategy`.
    * Hooks are called before a checkpoint is loaded, as by ``Runner``, and ``DDPStrategy`` saves
      weights under their names in one process. Without these, the ``EMAHook`` fails.
    * A strategy whose checkpoints cannot be resumed from exactly is refused.

    Raises:
        UserError: The strategy is mmengine's FSDP, DeepSpeed or ColossalAI.

    Examples:
        >>> runner_type = 'mmrank.FlexibleRunner'
        >>> strategy = dict(type='mmrank.FSDPStrategy')
    """

    #: Asked by hooks.
    saves_whole_checkpoints = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._has_begun = False
        self._saved_position: dict = {}
        super().__init__(*args, **kwargs)

    def build_strategy(
        self, strategy: Any = None, *args: Any, env_cfg: dict | None = None, **kwargs: Any
    ) -> Any:
        """Build a strategy, unless its checkpoints cannot be made whole."""
        refuse_strategy(strategy)
        return super().build_strategy(strategy, *args, env_cfg=env_cfg or {}, **kwargs)

    def load_or_resume(self) -> None:
        """Call the hooks that prepare for a checkpoint, then load it."""
        self.call_hook('before_run')
        self._has_begun = True
        super().load_or_resume()

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call all hooks; ``before_run`` once a run."""
        if fn_name == 'before_run' and self._has_begun:
            self._has_begun = False  # mmengine's own call, after the load
            return
        if fn_name == 'before_save_checkpoint':
            checkpoint = kwargs['checkpoint']
            checkpoint['meta'].update(self._saved_position)
            if is_model_wrapper(self.model):
                consume_prefix_in_state_dict_if_present(checkpoint['state_dict'], 'module.')
        super().call_hook(fn_name, **kwargs)

    def save_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: dict | None = None,
        *args: Any,
        meta: dict | None = None,
        backend_args: dict | None = None,
        **kwargs: Any,
    ) -> None:
        """Save a checkpoint, on a local disk whole or not at all; all processes call it.

        An epoch and an iteration in ``meta`` are kept, as by ``Runner``.
        """
        self._saved_position = {key: meta[key] for key in ('epoch', 'iter') if key in (meta or {})}
        kwargs['meta'] = meta
        backend = get_file_backend(str(out_dir), backend_args=backend_args)
        if file_client_args is not None or not isinstance(backend, LocalBackend):
            super().save_checkpoint(
                out_dir, filename, file_client_args, *args, backend_args=backend_args, **kwargs
            )
            return
        with whole_checkpoint(os.path.join(out_dir, filename)) as temp:
            super().save_checkpoint(out_dir, temp.name, None, *args, **kwargs)
