"""Names of settings that nothing would read: mmengine takes any."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from inspect import signature

from mmengine.config import Config

from mmrank.errors import UserError

#: What a runner reads of a config in addition to its own arguments, and mmdet's wrapper at test.
_MORE_SETTINGS = (
    'runner_type custom_imports find_unused_parameters model_wrapper_cfg sync_bn '
    'activation_checkpointing compile efficient_conv_bn_eval tta_model tta_pipeline'
)
#: Likeness, in [0, 1], from which a name is taken for a slip: of a part of the config, of a
#: variable of a file. batch_sampler is 0.70 like sampler, and test_pipeline 0.88 like tta_pipeline.
_LIKE_A_PART = 0.8
_LIKE_A_SETTING = 0.9


def check_file_names(cfg: Config, path: str) -> None:
    """Refuse a variable of a file whose name is nearly a setting of the runner.

    Others may be helpers of the file, also one whose value is the setting or a part of it.
    """
    known = _settings_of_runner()
    for name, value in cfg.items():
        close = get_close_matches(name.lower(), known, 1, _LIKE_A_SETTING)
        if name in known or not close or any(value == x for x in _parts(cfg.get(close[0]))):
            continue
        what = f'{path}: nothing reads {name!r}, which is nearly {close[0]!r}'
        raise UserError(what, f'{close[0]}, or another name if it is a variable of your own')


def check_option_names(cfg: Config, options: Mapping) -> None:
    """Refuse an option of the command line that nothing would read."""
    for option in options:
        node = cfg
        path = ''
        for name in option.split('.'):
            if not isinstance(node, dict | Config):
                break
            path += f'.{name}' if path else name
            if name not in node:
                close = get_close_matches(name, [*map(str, node)], 1, _LIKE_A_PART)
                is_new = path == option or not close
                # What is built checks its own settings, and a part may be new.
                if name in _settings_of_runner() if path == name else is_new:
                    break
                fix = path.removesuffix(name) + close[0] if close else 'a key that the config has'
                raise UserError(
                    f'--cfg-options {option}: the config has no {path!r}, so nothing reads it.\n'
                    f'  Fix: {fix}'
                )
            node = node[name]


def _parts(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, Mapping):
        yield from value.values()


def _settings_of_runner() -> list[str]:
    from mmengine.runner import Runner

    return [*signature(Runner).parameters, *_MORE_SETTINGS.split()]
