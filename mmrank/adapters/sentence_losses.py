"""Losses for the trainer of sentence-transformers.

Pass one as ``loss`` of ``SentenceTransformerTrainer``. The first columns of the data set are its
texts, or what else the model embeds; each class below says what a column ``label`` of integers is.
:class:`CrossEncoderRankingLoss` is for ``CrossEncoderTrainer``.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from mmrank.autograd import violated
from mmrank.distributed import all_labelled_rows, joined_group
from mmrank.errors import UserError, UserTypeError
from mmrank.files import replace_atomically
from mmrank.imports import required_package
from mmrank.losses import ContrastiveLoss, EmbeddingBatch, HeadLoss, InBatchLoss, TrainsEmbeddings
from mmrank.losses.contrastive.grad_cache import grad_cache
from mmrank.tensors import unit_rows

with required_package(
    'transformers', 'The adapter of sentence-transformers', "pip install 'mmrank[adapters]'"
):
    from transformers import TrainerCallback


#: All that there are; a trainer may have a dict of them.
_SENTENCE_LOSSES: weakref.WeakSet = weakref.WeakSet()


class _SentenceLoss(nn.Module):
    """Base: embeds the columns and calls a loss, whose state :class:`SaveLossState` saves.

    While the model is in eval mode, the state of the loss does not move. ``mini_batch_size`` of a
    subclass embeds so many rows at a time, with their activations alone in memory, and once more
    in the backward pass: the loss still sees the whole batch, and its gradient is the same. See
    :func:`mmrank.losses.contrastive.grad_cache.grad_cache`.
    """

    takes: type  # What the loss must be
    fix = ''  # What is said of another

    def __init__(
        self, model: nn.Module, loss: nn.Module, *, mini_batch_size: int | None = None
    ) -> None:
        super().__init__()
        if not isinstance(loss, self.takes):
            raise UserTypeError(
                f'{type(self).__name__} does not take loss={type(loss).__name__}. Fix: {self.fix}'
            )
        self.model = model
        self.loss: Any = loss  # what the class ``takes``
        self.mini_batch_size = mini_batch_size
        _SENTENCE_LOSSES.add(self)

    def forward(
        self, sentence_features: Iterable[Mapping[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """Scalar loss of the inputs of each column; labels: (B,) or (B, 2) integers or None."""
        # The model writes into what it is given.
        columns = [dict(x) for x in sentence_features]
        return self.compute_loss_from_embeddings(self.embed(columns), labels)

    def embed(self, columns: list[dict]) -> list[Tensor]:
        """(B, D) embeddings of each column."""
        return [self.in_parts(self._encode, x) for x in columns]

    def in_parts(self, encode: Callable, rows: Mapping | Sequence) -> Tensor:
        """What ``encode`` makes of the rows, ``mini_batch_size`` of them at a time.

        Before a step no gradient of a loss's own parameters is left: until sentence-transformers
        6.2 its trainer zeroes the model alone.
        """
        if torch.is_grad_enabled() and all(x.grad is None for x in self.model.parameters()):
            for other in _SENTENCE_LOSSES:
                if other.model is self.model:
                    other.loss.zero_grad()
        if self.mini_batch_size is None or not torch.is_grad_enabled():
            return encode(rows)
        return grad_cache(encode, rows, self.mini_batch_size, [self.model])

    def _encode(self, column: dict) -> Tensor:
        return self.model(dict(column))['sentence_embedding']

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor | None
    ) -> Tensor:
        """Loss of the (B, D) embeddings of each column; the name is sentence-transformers'."""
        self.loss.train(self.model.training)
        return self.compute(embeddings, labels)

    def compute(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of the embeddings, defined by subclasses."""
        raise NotImplementedError

    def check_columns(self, embeddings: list[Tensor], expected: str) -> None:
        """Check that there are two columns, which are ``expected``."""
        if len(embeddings) != 2:
            what = f'{type(self).__name__} needs 2 columns in addition to label, {expected}'
            raise UserError(f'{what}, got {len(embeddings)}', 'dataset.select_columns([...])')


class SentenceContrastLoss(_SentenceLoss):
    """Contrastive losses: InfoNCE, CLIP, SogCLR, iSogCLR, VICReg and others.

    Data set: two columns, such as ``anchor`` and ``positive``; or one, which is embedded twice,
    with another dropout (SimCSE). ``label`` is the index of the row in the data set::

        dataset = dataset.add_column('label', range(len(dataset)))
        loss = SentenceContrastLoss(
            model, BimodalISogCLRLoss(num_samples=len(dataset)))

    Losses that keep state for each row (SogCLR, iSogCLR) require it. For the others it may be left
    out; rows with one index are not negatives of each other. Where ``label`` is a class take
    ``SentenceRetrievalLoss(model, InfoNCELoss())``. Do not pass an ``eval_dataset`` to a
    trainer with such state, whose rows would be taken for the training set's.
    """

    takes = ContrastiveLoss
    fix = 'InfoNCELoss(tau=0.05); ranking losses go into SentenceRetrievalLoss'

    def embed(self, columns: list[dict]) -> list[Tensor]:
        """Two views: of two columns, or of one column twice."""
        if len(columns) == 1:
            columns = [columns[0], dict(columns[0])]
        return super().embed(columns)

    def compute(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        self.check_columns(embeddings, 'the views of each sample')
        if labels is None and self.loss.keeps_samples:
            raise UserError(
                f'{type(self.loss).__name__} keeps state for each row of the data set and needs '
                "its index. Fix: dataset = dataset.add_column('label', range(len(dataset)))"
            )
        return self.loss(*embeddings, labels)


class SentenceRetrievalLoss(_SentenceLoss):
    """Ranking losses: each query ranks the documents of the batch.

    Data set, one of:

    * one column and ``label``, its class: every row searches all others for rows of its class;
    * two columns, query and document; further columns are hard negatives. ``label`` is the class of
      both, or is left out: then each query has one relevant document. Use ``mode='flatten'``
      without classes.

    With ``normalize`` a loss takes its settings for cosines where none is given.

    Args:
        model: A ``SentenceTransformer``.
        loss: A loss with ``embedding_loss``: a ranking loss or ``PMLLoss``.
        normalize: Rank by cosines instead of inner products.
        mini_batch_size: Rows to embed at a time; None: all.
    """

    takes = TrainsEmbeddings
    fix = 'SmoothAPLoss(); contrastive losses go into SentenceContrastLoss'

    def __init__(
        self,
        model: nn.Module,
        loss: TrainsEmbeddings,
        normalize: bool = True,
        *,
        mini_batch_size: int | None = None,
    ) -> None:
        if normalize and isinstance(loss, HeadLoss):
            loss = loss.of_cosines()
        super().__init__(model, cast(nn.Module, loss), mini_batch_size=mini_batch_size)
        self.normalize = normalize

    def compute(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Loss of the queries against the documents of this rank."""
        as_embedded = embeddings[0]
        if self.normalize:
            embeddings = [unit_rows(x) for x in embeddings]
        queries, *documents = embeddings
        if labels is None and not documents:
            raise UserError(
                'SentenceRetrievalLoss needs a column label, the class of each row, if there is '
                "one column of texts. Fix: dataset.add_column('label', classes)"
            )
        if labels is None and getattr(self.loss, 'mode', 'flatten') == 'per_class':
            what = f"{type(self.loss).__name__}(mode='per_class') keeps state for each class"
            raise UserError(f'{what}, and there is no column label', "mode='flatten'")
        gallery = torch.cat(documents or [queries])
        size = len(queries)
        rows = torch.arange(size, device=queries.device)
        classes = rows if labels is None else self._classes(labels).to(rows)
        begin = 0
        group = joined_group(self.loss)
        if group is not None:
            queries, classes, _, begin = all_labelled_rows(queries, classes[:, None], group)
            classes = classes[:, 0]
        if labels is None:
            classes = torch.arange(len(queries), device=queries.device)
        known = classes[begin : begin + size]
        known = torch.cat([known, known.new_full((len(gallery) - size,), -1)])
        is_itself = torch.zeros(len(queries), len(gallery), dtype=torch.bool, device=rows.device)
        if not documents:
            is_itself[begin + rows, rows] = True
        gallery = gallery.to(queries.dtype)
        return self.loss.embedding_loss(
            EmbeddingBatch(queries, classes, gallery, known, is_itself, as_embedded)
        )

    @staticmethod
    def _classes(labels: Tensor) -> Tensor:
        """The column label; UserError for the -1 of SNLI, and for the scores of STS."""
        if violated((labels >= 0).all(), "the column 'label' holds classes below 0"):
            raise UserError(
                f"the column 'label' holds {labels.min().item()}, which would be a class like any "
                "other. Fix: dataset.filter(lambda row: row['label'] >= 0); of pairs of texts that "
                'entail each other or not, those that do, without the column label'
            )
        whole = labels == labels.long()
        if violated(whole.all(), "the column 'label' holds scores in place of classes"):
            raise UserError(
                f"the column 'label' holds {labels[~whole][0].item():.3g}, a score of a pair in "
                'place of a class. Fix: of pairs with a score, '
                "dataset.filter(lambda row: row['label'] > 0.5), without the column label"
            )
        return labels


class SentenceInBatchLoss(_SentenceLoss):
    """In-batch losses of two towers, unbiased by the counts of the pairs.

    Data set: two columns, such as ``query`` and ``document``, and ``label``, a pair of integers:
    which query and which document the row has. A document that occurs in many rows is a frequent
    negative; the counts undo that::

        loss = SentenceInBatchLoss(
            model, InBatchLoss(pointwise='logistic'), dataset['label'])

    ``pairs`` is the column ``label`` of the training set, (|O|, 2) integers; see
    :class:`SentenceRetrievalLoss` for ``mini_batch_size``.
    """

    takes = InBatchLoss
    fix = 'InBatchLoss()'

    def __init__(
        self,
        model: nn.Module,
        loss: InBatchLoss,
        pairs: Sequence[Sequence[int]],
        *,
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__(model, loss, mini_batch_size=mini_batch_size)
        known = torch.as_tensor(pairs)
        _check_pairs('pairs', known)
        loss.set_pairs(known[:, 0], known[:, 1], tuple((known.amax(0) + 1).tolist()))

    def compute(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        self.check_columns(embeddings, 'queries and documents')
        if labels is None:
            labels = torch.zeros(0)
        _check_pairs("the column 'label'", labels)
        return self.loss(*embeddings, *labels.unbind(1))


class CrossEncoderRankingLoss(_SentenceLoss):
    """Ranking losses for ``CrossEncoderTrainer``: each query ranks documents of its own.

    Data set: a column of queries, one of the list of documents of each, of any length, and
    ``labels``, a list of numbers as long: 0 and 1; levels 0, 1, 2, ... for a loss that takes them
    (``NDCGLoss``, ``HAPLoss``, ``LambdaLoss``, ``ListNetLoss``); or relevances in [0, 1] for one
    with ``quality``, such as ``StableAPLoss(quality=1.0)``.

    In several processes the loss has ``scope='local'``. ``mini_batch_size`` is of pairs of texts.
    """

    takes = HeadLoss
    fix = 'LambdaLoss()'

    def forward(self, inputs: Sequence[Sequence], labels: Sequence[Tensor], **options) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]  # of another trainer
        """Scalar loss of lists of documents, (n,) labels each; options: ``prompt``, ``task``."""
        queries, documents = inputs
        sizes = [len(x) for x in documents]
        numbers = [x.numel() for x in labels]
        if sizes != numbers:
            raise UserError(
                f'each query needs a list of documents and as many labels, got {sizes} and '
                f"{numbers}. Fix: mine_hard_negatives(..., output_format='labeled-list')"
            )
        pairs = [(query, x) for query, own in zip(queries, documents) for x in own]
        scores = self.in_parts(partial(self._scores, **options), pairs).flatten()
        self.loss.train(self.model.training)
        target = torch.cat([*labels]).to(scores.device)
        group = torch.arange(len(queries)).repeat_interleave(torch.tensor(sizes)).to(scores.device)
        if self.loss.box_input == 'quality':
            return self.loss(scores, target > 0, quality=target.to(scores.dtype), group=group)
        return self.loss(scores, target, group=group)

    def _scores(self, pairs: list, **options) -> Tensor:
        model: Any = self.model  # a CrossEncoder
        features = model.preprocess(pairs, **options)
        moved = {k: x.to(model.device) if isinstance(x, Tensor) else x for k, x in features.items()}
        return model(moved)['scores']


class SaveLossState(TrainerCallback):
    """Saves the state of a loss in the checkpoints of a trainer.

    The trainer saves the model alone. Without the moving averages and temperatures a resumed
    training restarts them::

        SentenceTransformerTrainer(..., loss=loss,
                                   callbacks=[SaveLossState(loss)])

    A training that goes on in another ``output_dir`` names its checkpoint in the arguments as well:
    ``SentenceTransformerTrainingArguments(..., resume_from_checkpoint=checkpoint)``.
    """

    FILE = 'mmrank_loss.pt'

    def __init__(self, loss: _SentenceLoss) -> None:
        self.loss = loss.loss

    def on_save(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero:
            with replace_atomically(self._path(args, state)) as part:
                torch.save(self.loss.state_dict(), part)

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Read it, if a training is resumed; UserError if it is not there."""
        if not state.global_step:
            return
        path = self._path(args, state)
        if args.resume_from_checkpoint:
            path = Path(args.resume_from_checkpoint) / self.FILE
        if path.is_file():
            self.loss.load_state_dict(torch.load(path, map_location='cpu', weights_only=True))
        elif self.loss.state_dict():
            raise UserError(
                f'{path} with the state of the loss is not there, so the training would go on with '
                'a fresh state. Fix: of a checkpoint in another folder training arguments with '
                'resume_from_checkpoint=that checkpoint; to start with a fresh state, write it '
                f'there: torch.save(loss.loss.state_dict(), {str(path)!r})'
            )

    def _path(self, args, state) -> Path:
        return Path(args.output_dir) / f'checkpoint-{state.global_step}' / self.FILE


def _check_pairs(name: str, pairs: Tensor) -> None:
    if pairs.dim() != 2 or pairs.size(1) != 2 or pairs.is_floating_point():
        what = f'{name} must be a pair of integers for each row, its query and its document'
        fix = "dataset.add_column('label', [[query, document], ...])"
        raise UserError(f'{what}, got shape {tuple(pairs.shape)} of {pairs.dtype}', fix)
