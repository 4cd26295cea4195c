"""Names that mmrank had, and the one sentence that a user of them gets: what to do instead."""

from collections.abc import Callable

from mmrank.errors import UserError

_TAR = 'CaptionTable over image files, or webdataset, see docs/pages/users/image_text.md'
_PAIRS = 'the mean of mmrank.functional.Pointwise, or torch.nn.functional, over the scores'
#: Registered names: the root registry of mmengine that a config looks in, and what to do.
TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(('ShardedCaptions', 'StreamedCaptions'), ('DATASETS', _TAR)),
    **dict.fromkeys(
        ('NaivePairSampler', 'CrossPairSampler'),
        ('DATA_SAMPLERS', 'mmrank.InBatchPairSampler, which the losses of two towers take'),
    ),
    'MultiLabelPositiveSampler': (
        'DATA_SAMPLERS',
        'leave it out, or mmrank.PositiveRateSampler for a class',
    ),
    'ShardSampler': ('DATA_SAMPLERS', _TAR),
    'LoadImageFromBytes': ('TRANSFORMS', _TAR),
    'FSDPStrategy': ('STRATEGIES', 'fully_shard of torch through Lightning or accelerate'),
    'FlexibleRunner': ('RUNNERS', "leave out runner_type and strategy; mmengine's Runner trains"),
    'TemperatureHook': (
        'HOOKS',
        'leave it out: tools/analysis_tools/temperatures.py CONFIG CHECKPOINT draws the same',
    ),
    'ShardedStateHook': ('HOOKS', 'leave it out: the checkpoint holds the whole state'),
    'ShardedEmbeddingTower': ('MODELS', 'mmrank.EmbeddingTower; torchrec shards large tables'),
    'ShardedTablesHook': ('HOOKS', 'leave it out, with mmrank.EmbeddingTower'),
    'GradCacheOptimWrapper': ('OPTIM_WRAPPERS', 'grad_cache of mmrank.functional in your own loop'),
    'GradCacheAmpOptimWrapper': ('OPTIM_WRAPPERS', 'grad_cache of mmrank.functional, autocast'),
    'MLPTower': ('MODELS', 'a tower of your own in MODELS, EmbeddingTower and linear layers'),
    'LabelledPairLoss': ('MODELS', _PAIRS),
}
#: Other names of mmrank's packages.
NAMES = {
    **dict.fromkeys(('TakesPairLabels', 'labelled_pair_loss'), _PAIRS),
    'in_batch_loss': 'mmrank.InBatchLoss, which takes the embeddings',
    'info_nce_loss': 'mmrank.InfoNCELoss(tau)(view1, view2)',
    'Prefetches': 'leave prefetch out: the state is where the model is',
    'localisation_aware_calibration_error': 'expected_calibration_error, by the precision',
    'StoredEmbeddings': 'tensors, or a faiss index of your own, see docs/pages/users/retrieval.md',
    **dict.fromkeys(
        ('load_model', 'released_models', 'find_weights'), 'trained_model of mmrank.runners.models'
    ),
    'Logistic': 'Sigmoid, or a Surrogate of your own with its terms',
    'MeanAveragePrecisionEvaluator': 'InformationRetrievalEvaluator(map_at_k=[len(corpus)])',
    'ShiftsLogits': 'leave shift_logits out: nothing moves the state of a loss',
    'GradCacheMixin': 'grad_cache of mmrank.functional in the forward pass of the model',
}
#: Settings, as ``Class.setting``, or by name alone where several classes had it.
SETTINGS = {
    'storage': 'leave it out: every process holds the whole state, 12 bytes a sample',
    **dict.fromkeys(
        (f'DRLoss.{name}' for name in ('pos_lambda', 'neg_lambda', 'sharpness', 'scale', 'margin')),
        "leave it out: the paper's value is a constant",
    ),
    'ListwiseHead.pointwise_loss': 'leave it out: heads that choose positives by it stay stock',
    'InteractionDataset.duplicates': 'leave it out: a pair that is repeated counts once',
    'InBatchLoss.block_size': 'leave it out: blocks fit the cache',
    'InBatchSoftmaxLoss.num_buckets': 'leave it out: PairCountsHook or set_pairs counts the pairs',
    'InBatchSoftmaxLoss.num_hashes': 'leave it out: PairCountsHook or set_pairs counts the pairs',
    'InBatchSoftmaxLoss.alpha': 'leave it out: PairCountsHook or set_pairs counts the pairs',
    'TwoViewPreprocessor.bgr_to_rgb': 'leave it out, and load images as RGB',
    'RetrievalMetric.memory': 'leave it out, or build a faiss index over the features of out_file',
    'RetrievalMetric.gallery_per_class': 'gallery_key, a field that the data set draws',
    'RetrievalMetric.recall_only': 'leave it out: Recall@K is among the figures',
    'RetrievalMetric.index': 'leave it out, or build a faiss index over the features of out_file',
    'AUCLoss.max_fpr': 'mmrank.PartialAUCLoss(max_fpr=..., tau=...)',
    'AUCLoss.min_tpr': 'leave it out, or mmrank.PartialAUCLoss(max_fpr=...) for hard negatives',
    'PartialAUCLoss.margin': 'tau',
    **dict.fromkeys(
        (
            f'PartialAUCLoss.{name}'
            for name in ('num_samples', 'lam', 'lam_pos', 'eta', 'gamma', 'load_state')
        ),
        'leave it out: max_fpr alone says which negatives of a batch count, without state',
    ),
    'reduction': 'leave it out: the loss is a mean over rankings; mmrank.StableAPLoss can sum',
    **dict.fromkeys(('MAUCLoss.surrogate', 'SOAPLoss.mode', 'SOAPLoss.load_state'), 'leave it out'),
    'BarlowTwinsLoss.off_diagonal': 'loss.off_diagonal = value',
    'CyCLIPLoss.cross_weight': 'loss.cross_weight = value',
    'CyCLIPLoss.in_weight': 'loss.in_weight = value',
    'InfoNCELoss.normalize': 'leave it out: similarities are cosines',
    'InfoNCELoss.positive_in_denominator': 'mmrank.FlatCLRLoss leaves it out',
    'SigLIPLoss.bias': 'loss.logit_bias.data.fill_(bias)',
    'SimCoLoss.tau_inter': 'loss.tau_inter = value',
    'SpectralContrastiveLoss.mu': 'loss.mu = value',
    'VICRegLoss.covariance': 'loss.covariance = value',
    'VICRegLoss.invariance': 'loss.invariance = value',
    'VICRegLoss.variance': 'loss.variance = value',
}


def retired_name(name: str) -> str:
    """What to do instead of a public name; empty if mmrank never had it."""
    return TYPES[name][1] if name in TYPES else NAMES.get(name, '')


def retired_setting(owner: str, name: str) -> str:
    """What to do instead of a setting of a class; empty if the class never had it."""
    return SETTINGS.get(f'{owner}.{name}') or SETTINGS.get(name, '')


def refuse_retired(root: str, get: Callable) -> Callable:
    """``get`` of a registry node, which raises a UserError for what the node had.

    Not registered: mmengine and tools go through all that a registry holds.
    """

    def look_up(key: str) -> object:
        name = key.removeprefix('mmrank.')
        if name in TYPES and TYPES[name][0] == root:
            raise UserError(f'mmrank.{name} is gone', TYPES[name][1])
        return get(key)

    return look_up
