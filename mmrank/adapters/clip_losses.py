"""CLIP models of transformers and open_clip on contrastive losses."""

import copy

from torch import Tensor, nn
from torch.func import functional_call

from mmrank.errors import UserError, UserTypeError
from mmrank.losses import ContrastiveLoss


class OpenCLIPLoss(nn.Module):
    """Calls a contrastive loss as the training loop of open_clip calls its own.

    The temperature and bias that a loss would learn (``SigLIPLoss``, ``CLIPLoss``) are the model's,
    so that its optimiser steps them and its checkpoint keeps them. The state of a loss is in
    ``state_dict()`` of this module::

        loss = OpenCLIPLoss(BimodalISogCLRLoss(num_samples=len(dataset)))
        loss(**model(images, texts), sample_idx=index).backward()

    Args:
        loss: A contrastive loss of :mod:`mmrank.losses`.
    """

    asked: tuple | None  # the index of a batch of a model whose loss is asked for

    def __init__(self, loss: ContrastiveLoss) -> None:
        super().__init__()
        if not isinstance(loss, ContrastiveLoss):
            raise UserTypeError(
                f'loss={type(loss).__name__} is not contrastive. Fix: pass one such as '
                'mmrank.losses.SigLIPLoss() or BimodalISogCLRLoss(num_samples=len(dataset))'
            )
        self.loss = loss
        for key, parameter in loss.named_parameters():
            # The model has its own.
            parameter.requires_grad_(key not in ('log_scale', 'log_tau'))

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
        *,
        sample_idx: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss of a batch.

        Args:
            image_features: (B, D) floats.
            text_features: (B, D) floats.
            logit_scale: () or (1,), 1 / temperature, > 0.
            logit_bias: () or (1,); ``SigLIPLoss`` requires it.
            output_dict: Return ``{'contrastive_loss': loss}``.
            sample_idx: (B,) integers: the index of each pair in the data set. SogCLR and iSogCLR
                require it.

        Returns:
            Scalar, or a dict of it. All ranks return the loss of the joined batch.
        """
        name = type(self.loss).__name__
        if sample_idx is None and self.loss.keeps_samples:
            what = f'{name} keeps state for each pair of the data set and needs its index'
            fix = "sample_idx=index; a column 'label' of indices for the Trainer of transformers"
            raise UserError(what, fix)
        learned = {key for key, _ in self.loss.named_parameters()}
        if logit_bias is None and 'logit_bias' in learned:
            what = f'{name} needs the logit_bias of the model'
            fix = 'open_clip.create_model(..., init_logit_scale=math.log(10), init_logit_bias=-10)'
            raise UserError(what, fix)
        log_scale = logit_scale.log().squeeze()
        of_model = {'log_scale': log_scale, 'log_tau': -log_scale, 'logit_bias': logit_bias}
        of_model = {key: value.view(()) for key, value in of_model.items() if key in learned}
        value = functional_call(self.loss, of_model, (image_features, text_features, sample_idx))
        # DistributedDataParallel waits for a gradient of every parameter.
        value = value + 0 * logit_scale.sum()
        return {'contrastive_loss': value} if output_dict else value


def use_contrastive_loss(model: nn.Module, loss: ContrastiveLoss) -> nn.Module:
    """Replace the loss of a ``CLIPModel`` or ``SiglipModel`` of transformers, in place.

    Call it before the model is wrapped for distributed training and before the optimiser is made.
    The data set of the ``Trainer`` has a column ``label``, the index of each row, which the losses
    with state for each pair require; without one, ``return_loss=True`` asks for the loss::

        model = use_contrastive_loss(model, BimodalISogCLRLoss(num_samples=len(dataset)))
        Trainer(model, args, train_dataset=dataset).train()

    The loss is copied into the model: its state is part of ``state_dict()``, ``save_pretrained()``
    and the checkpoints of the trainer, from which it resumes. ``from_pretrained`` without mmrank
    warns of unused weights, and loads all others. See :class:`OpenCLIPLoss` for temperature and
    bias; ``CLIPModel`` has no bias, so there it is part of the loss.

    Args:
        model: A model with ``logit_scale``, whose outputs have ``image_embeds`` and
            ``text_embeds``.
        loss: A contrastive loss of :mod:`mmrank.losses`.

    Raises:
        TypeError: If the model or the loss is none of these.
        UserError: If the model has such a loss already.
    """
    scale = getattr(model, 'logit_scale', None)
    if not isinstance(scale, nn.Parameter):
        raise UserTypeError(
            f'model={type(model).__name__} has no parameter logit_scale. Fix: pass a CLIPModel or '
            'SiglipModel of transformers, before it is wrapped; for open_clip see OpenCLIPLoss'
        )
    if hasattr(model, 'contrastive_loss'):
        raise UserError('the model has a contrastive loss already. Fix: load it anew')
    added = OpenCLIPLoss(copy.deepcopy(loss))
    model.contrastive_loss = added.to(scale.device).train(model.training)
    if hasattr(model, 'logit_bias') and hasattr(added.loss, 'logit_bias'):
        added.loss.logit_bias.requires_grad_(False)
    # A mean over the batch: the Trainer divides it where it accumulates gradients.
    vars(model)['accepts_loss_kwargs'] = False
    model.register_forward_pre_hook(_take_index, with_kwargs=True)
    model.register_forward_hook(_add_loss)
    return model


def _take_index(model, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    wanted = kwargs.pop('return_loss', False)
    index = kwargs.pop('labels', None)
    own: OpenCLIPLoss = model.contrastive_loss
    own.asked = (index,) if wanted or index is not None else None
    return args, kwargs


def _add_loss(model, args: tuple, outputs):
    own: OpenCLIPLoss = model.contrastive_loss
    asked = own.asked
    own.asked = None
    if asked is None:
        return outputs
    bias = getattr(model, 'logit_bias', getattr(own.loss, 'logit_bias', None))
    views = outputs.image_embeds, outputs.text_embeds
    value = own(*views, model.logit_scale.exp(), bias, sample_idx=asked[0])
    return type(outputs)(loss=value, **outputs)
