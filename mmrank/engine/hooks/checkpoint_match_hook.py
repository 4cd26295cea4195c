"""Refuses checkpoints of another model."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from mmengine.dist import all_gather_object
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import BaseLoop

from mmrank.checkpoint_loading import CheckpointError
from mmrank.engine.hooks.atomic_checkpoint_hook import confine_best_checkpoints
from mmrank.engine.resume.matching import (
    bare_model,
    changed_settings,
    classes_in_other_order,
    compare_states,
    compare_training,
    differences_table,
    missing_centre,
    model_state,
    other_classes,
)
from mmrank.engine.runners import refuse_flexible_runner
from mmrank.errors import UserError
from mmrank.registry import HOOKS


@HOOKS.register_module()
class CheckpointMatchHook(Hook):
    """Compares a checkpoint with the run before anything of it is loaded.

    mmengine loads what fits and logs the rest: an empty checkpoint gives plausible metrics of
    random weights. This hook refuses keys and classes that differ. For a resume it also compares
    the optimiser, schedulers and averages, warns of other settings, and refuses processes that
    resume from different checkpoints. Weights that are not finite are not saved.

    Args:
        strict: Whether to refuse; False logs the table, and values of another shape stay fresh.
        allow: Patterns of keys that may differ, with ``*`` and ``?``: ``['bbox_head.*',
            'optimizer']``.
    """

    priority = 'VERY_HIGH'  # Before the EMAHook, which fails on such a checkpoint by itself

    def __init__(self, strict: bool = True, allow: Sequence[str] = ()) -> None:
        self.strict = strict
        self.allow = tuple(allow)

    def before_train(self, runner) -> None:
        steps = all_gather_object(runner.iter)
        if len({*steps}) > 1:
            what = f'the processes start at the iterations {steps}, of different checkpoints'
            raise CheckpointError(what, 'a work folder that all share, or --resume PATH')

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        for name, weight in runner.model.named_parameters():
            if not weight.isfinite().all():
                raise UserError(
                    f'iteration {runner.iter}: {name} has NaN or infinite weights, and no '
                    'checkpoint is written; those before are whole',
                    'a lower optim_wrapper.optimizer.lr, a warm-up, or clip_grad=dict(max_norm=10)',
                )

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        refuse_flexible_runner(type(runner))
        name = runner._load_from or 'of the work folder'
        _check_content(name, checkpoint, runner._resume)
        confine_best_checkpoints(checkpoint, runner)
        loops = (runner._train_loop, runner._val_loop, runner._test_loop)
        dataset = next((x.dataloader.dataset for x in loops if isinstance(x, BaseLoop)), None)
        if self.strict and (other_order := classes_in_other_order(checkpoint, dataset)):
            raise CheckpointError(f'checkpoint {name} {other_order}')
        state = model_state(checkpoint)
        found = compare_states(runner.model, state)
        if runner._resume:
            schedulers = len(runner.param_schedulers or [])
            has_ema = any(isinstance(hook, EMAHook) for hook in runner.hooks)
            saved = str(checkpoint['meta'].get('cfg', ''))
            if changed := changed_settings(saved, runner.cfg.pretty_text):
                runner.logger.warning(
                    'The run is resumed with other settings. Rates and schedules go on as in the '
                    f'checkpoint:{changed}'
                )
            found += compare_training(checkpoint, runner.optim_wrapper, schedulers, has_ema)
        reasons = ()
        if self.strict:
            # Otherwise other classes are what is wanted.
            reasons = (missing_centre(found, state), other_classes(runner.model, found, checkpoint))
        why = ''.join(f'\n{reason}' for reason in reasons if reason)
        refused = [d for d in found if not any(fnmatchcase(d.key, x) for x in self.allow)]
        if self.strict and refused:
            raise CheckpointError(
                f'checkpoint {name} does not fit this config:\n{differences_table(refused)}\n  '
                'Fix: the config of this checkpoint (its work folder has a copy), or to leave out '
                f"what differs, --allow-partial '{refused[0].key}'{why}"
            )
        fresh = {item.key for item in found}
        weights = bare_model(runner.model).named_parameters()
        if not self.strict and all(key in fresh for key, _ in weights):
            raise CheckpointError(
                f'checkpoint {name} has no weight of this model:\n{differences_table(found)}',
                'a checkpoint of the same detector; one of a backbone alone belongs into its '
                "init_cfg=dict(type='Pretrained', checkpoint=...)",
            )
        if found:
            runner.logger.warning(
                f'Of checkpoint {name} these keys differ and are not loaded:\n'
                f'{differences_table(found)}{why}'
            )
        averages = checkpoint.get('ema_state_dict', {})
        for key in [item.key for item in found if item.kind == 'mismatched']:
            for part in (checkpoint, state, averages):
                part.pop(key, None)
                part.pop(f'module.{key}', None)
        # Where there is nothing but weights; the EMAHook takes the key for granted.
        checkpoint.setdefault('state_dict', dict(state))


def _check_content(name: str, checkpoint: dict, resume: bool) -> None:
    """Refuse what holds no model, or no training to resume."""
    if not (isinstance(checkpoint, dict) and isinstance(model_state(checkpoint), dict)):
        raise CheckpointError(f'checkpoint {name} holds no state of a model', 'the .pth of one')
    meta = checkpoint.get('meta')
    meta = meta if isinstance(meta, dict) else {}
    lacking = [key for key in ('epoch', 'iter') if type(meta.get(key)) is not int]
    parts = ('message_hub', 'state_dict')
    lacking += [key for key in parts if not isinstance(checkpoint.get(key), dict)]
    if resume and lacking:
        what = f'checkpoint {name} cannot be resumed: it has no {", ".join(lacking)}'
        fix = f"epoch_*.pth or iter_*.pth, or a new training: --cfg-options load_from='{name}'"
        raise CheckpointError(what, fix)
