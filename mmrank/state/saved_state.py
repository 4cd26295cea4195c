"""State whose saved shape has to fit."""

from typing import ClassVar

from torch import nn


class SavedState(nn.Module):
    """Module that refuses a saved state of another shape.

    mmengine logs a buffer of another shape and trains on with a fresh one, a resumed training would
    then not be the one that was interrupted.

    Attributes:
        shape_settings: What in a config sets the shapes, for the message.

    Raises:
        ValueError: By ``load_state_dict``, if a shape differs.
    """

    shape_settings: ClassVar[str] = 'num_classes'

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        for name, buffer in self.named_buffers(recurse=False):
            saved = state_dict.get(prefix + name)
            # Raised here: mmengine only logs what is put into `error_msgs`.
            if saved is not None and saved.shape != buffer.shape:
                raise ValueError(
                    f'{prefix}{name} of the checkpoint has shape {tuple(saved.shape)}, but that of '
                    f'the model is {tuple(buffer.shape)}: set {self.shape_settings} as in the '
                    'training of the checkpoint, or remove the key from the checkpoint to start '
                    'with fresh values'
                )
        super()._load_from_state_dict(state_dict, prefix, *args)
