"""Gradient caching of every model of embeddings, against the plain step."""

import copy

import pytest
import torch
from gloo_processes import run_on_ranks
from mmengine.model import MMDistributedDataParallel
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.structures import BaseDataElement
from small_models import CONV, IN_BATCH_HEAD, POOL, dual_encoder, table, two_tower
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.engine.optimizers import GradCacheAmpOptimWrapper, GradCacheOptimWrapper
from mmrank.errors import UserError
from mmrank.registry import MODELS, OPTIM_WRAPPERS

ROWS, STEPS = 7, 3
EXACT = dict(rtol=1e-12, atol=1e-12)


def retriever(head):
    last = dict(type='mmpretrain.LinearNeck', in_channels=8, out_channels=6, norm_cfg=None)
    return dict(type='mmrank.EmbeddingRetriever', image_encoder=[CONV, POOL, last], head=head)


MODEL_CONFIGS = {
    # One batch norm, for the tests of batch norms.
    'CLIP': dual_encoder('CLIPLoss', image_encoder=[dict(CONV, num_blocks=1), POOL]),
    'iSogCLR of images and texts': dual_encoder(
        dict(type='mmrank.BimodalISogCLRLoss', num_samples=30)
    ),
    'in-batch': dual_encoder(dict(type='mmrank.InBatchLoss', pointwise='logistic'), IN_BATCH_HEAD),
    'stable AP with a memory': retriever(
        dict(
            type='mmrank.RetrievalHead',
            num_classes=3,
            loss=dict(type='mmrank.StableAPLoss', mode='per_class', momentum=0.3),
            memory=dict(size=16, dim=6),
        )
    ),
    'iSogCLR of views': dict(
        type='mmrank.TwoViewLearner',
        backbone=CONV,
        neck=dict(
            type='mmpretrain.NonLinearNeck',
            in_channels=8,
            hid_channels=8,
            out_channels=6,
            with_last_bn=False,
            norm_cfg=dict(type='BN1d'),
        ),
        loss=dict(type='mmrank.ISogCLRLoss', num_samples=30, eta=0.1),
    ),
    'two towers': two_tower(
        dict(type='mmrank.MLPTower', stem=table(7, 5), stem_channels=5, channels=[6, 4]),
        5,
        dict(type='mmrank.InBatchLoss', pointwise='logistic'),
    ),
}
PAIRS = torch.arange(30) % 7, torch.arange(30) % 5


def build(name):
    if 'mmpretrain' in str(MODEL_CONFIGS[name]):
        pytest.importorskip('mmpretrain')
    torch.manual_seed(0)
    model = MODELS.build(copy.deepcopy(MODEL_CONFIGS[name])).double().train()
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.eval()
        if hasattr(layer, 'set_pairs') and hasattr(layer, 'pointwise'):
            layer.set_pairs(*PAIRS, (7, 5))
    return model


def batch(name, step, rows=slice(0, ROWS)):
    g = torch.Generator().manual_seed(step)
    images = torch.randn(2, ROWS, 3, 8, 8, generator=g).double()[:, rows]
    ids = torch.randperm(30, generator=g)[:ROWS][rows]
    if name == 'two towers':
        left, right = PAIRS[0][ids], PAIRS[1][ids]
        order = torch.arange(len(ids))
        return dict(
            left=dict(ids=left),
            right=dict(ids=right),
            rows=left,
            cols=right,
            left_index=order,
            right_index=order,
        )
    samples = []
    for i in ids.tolist():
        info = dict(sample_idx=i, image_id=i % 7, text_id=i % 5)
        sample = BaseDataElement(metainfo=info)
        sample.set_field('ab ' * (i % 4) + 'c', 'text')
        sample.set_field(torch.tensor([i % 3]), 'gt_label')
        samples.append(sample)
    inputs = list(images) if name == 'iSogCLR of views' else images[0]
    return dict(inputs=inputs, data_samples=samples)


class AsGiven(nn.Module):
    """Data preprocessor that leaves float64 images as they are."""

    def forward(self, data, training=False):
        return data


def train(model, wrapper, batches):
    """Losses, weights and state after some steps."""
    owner = getattr(model, 'module', model)
    owner.data_preprocessor = AsGiven()
    losses = [model.train_step(x, wrapper)['loss'] for x in batches]
    state = [x.detach().clone() for x in owner.state_dict().values()]
    return [torch.stack(losses).detach(), *state]


def wrapped(model, kind=GradCacheOptimWrapper, lr=0.3, **kwargs):
    if kind is not OptimWrapper:
        kwargs = dict(chunk=3, **kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return kind(optimizer=optimizer, **kwargs)


@pytest.mark.parametrize('name', MODEL_CONFIGS)
def test_equals_the_plain_step(name):
    batches = [batch(name, step) for step in range(STEPS)]
    plain, cached = build(name), build(name)
    calls = []
    encoder = cached.left if name == 'two towers' else cached
    for part in encoder.encoders():
        part.register_forward_pre_hook(lambda *_: calls.append(1))
    expected = train(plain, wrapped(plain, OptimWrapper), batches)
    got = train(cached, wrapped(cached), batches)
    assert calls.count(1) > STEPS * len(encoder.encoders())
    for x, y in zip(got, expected):
        exact = EXACT if x.dtype == torch.float64 else {}
        torch.testing.assert_close(x, y, **exact)


def test_accumulation_is_that_of_the_plain_step():
    name = 'CLIP'
    batches = [batch(name, step) for step in range(4)]
    results = []
    for kind in (OptimWrapper, GradCacheOptimWrapper):
        model = build(name)
        wrapper = wrapped(model, kind, accumulative_counts=2, clip_grad=dict(max_norm=0.1))
        wrapper.initialize_count_status(model, 0, 4)
        results.append(train(model, wrapper, batches))
    for x, y in zip(*results):
        torch.testing.assert_close(x, y, **EXACT)


def test_the_model_is_as_before_outside_of_a_step():
    model = build('CLIP')
    wrapper = wrapped(model)
    with wrapper.optim_context(model):
        assert model.grad_cache_chunk == 3
    assert model.grad_cache_chunk is None
    with pytest.raises(RuntimeError), wrapper.optim_context(model):
        raise RuntimeError
    assert model.grad_cache_chunk is None


def parts(name, rank):
    """Batches that two ranks share unevenly."""
    for step in range(STEPS):
        yield batch(name, step, slice(0, 4) if rank == 0 else slice(4, ROWS))


def on_rank(rank, name):
    model, sent = build(name), []
    ddp = MMDistributedDataParallel(model, broadcast_buffers=False)

    def count(state, bucket):
        sent.append(len(bucket.gradients()))
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        return default_hooks.allreduce_hook(None, bucket)

    ddp.register_comm_hook(None, count)
    wrapper = wrapped(model)
    wrapper.chunk = 2
    result = train(ddp, wrapper, parts(name, rank))
    weights = sum(x.requires_grad for x in model.parameters())
    # Every gradient is sent once a step.
    assert sum(sent) == STEPS * weights
    return result


@pytest.mark.processes
@pytest.mark.parametrize(
    'name', [pytest.param('CLIP', marks=pytest.mark.slow), 'iSogCLR of images and texts']
)
def test_two_ranks_equal_one_process(name):
    model = build(name)
    batches = [batch(name, step) for step in range(STEPS)]
    expected = train(model, wrapped(model, OptimWrapper), batches)
    for got in run_on_ranks(on_rank, 2, name):
        for x, y in zip(got, expected):
            exact = EXACT if x.dtype == torch.float64 else {}
            torch.testing.assert_close(x, y, **exact)


def test_batch_norm_is_refused_or_of_a_chunk():
    model = build('CLIP').train()
    with pytest.raises(UserError, match=r'BatchNorm2d in training mode.*Fix'):
        train(model, wrapped(model), [batch('CLIP', 0)])
    wrapper = wrapped(model, batch_norm='chunk', lr=0.0)
    (norm,) = (x for x in model.modules() if isinstance(x, _BatchNorm))
    train(model, wrapper, [batch('CLIP', 0)])
    # Seven rows are three chunks, each of which counts once.
    assert int(norm.num_batches_tracked) == 3


class OwnBatchNorm(nn.Module):
    """Does not derive from torch's; a frozen one has its weight as a buffer."""

    def __init__(self, frozen):
        super().__init__()
        self.register_buffer('running_mean', torch.zeros(1))
        weight = torch.ones(1)
        self.register_buffer('weight', weight) if frozen else setattr(
            self, 'weight', nn.Parameter(weight)
        )

    def forward(self, x):
        return self.weight * (x - self.running_mean)


def test_batch_norm_of_another_library_is_refused():
    model = build('CLIP').train()
    name = next(n for n, x in model.named_modules() if isinstance(x, _BatchNorm))
    parent, _, name = name.rpartition('.')
    setattr(model.get_submodule(parent), name, OwnBatchNorm(frozen=False))
    with pytest.raises(UserError, match=r'OwnBatchNorm in training mode.*Fix'):
        train(model, wrapped(model), [batch('CLIP', 0)])
    setattr(model.get_submodule(parent), name, OwnBatchNorm(frozen=True))
    train(model, wrapped(model), [batch('CLIP', 0)])


def test_synchronised_batch_norm_is_refused():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(build('CLIP')).train()
    wrapper = wrapped(model, batch_norm='chunk')
    with pytest.raises(UserError, match='SyncBatchNorm, which cannot'):
        train(model, wrapper, [batch('CLIP', 0)])


def test_mixed_features_are_refused():
    config = copy.deepcopy(MODEL_CONFIGS['stable AP with a memory'])
    config['image_encoder'][0] = dict(
        type='mmrank.DeepFeatureMixup', backbone=CONV, stages=['blocks.0'], u=0.5
    )
    pytest.importorskip('mmpretrain')
    model = MODELS.build(config).eval()
    with (
        pytest.raises(UserError, match='mixes the features of a batch'),
        wrapped(model).optim_context(model),
    ):
        pass


def test_a_model_without_a_separable_encoder_is_refused():
    model = nn.Linear(2, 2)
    with (
        pytest.raises(UserError, match=r'Linear has no encoder .* Fix'),
        wrapped(model).optim_context(model),
    ):
        pass


def test_settings():
    model = build('two towers')
    for config, message in (
        (dict(chunk=0), 'chunk must be an int >= 1'),
        (dict(chunk=2.5), 'chunk must be an int >= 1'),
        (dict(chunk=2, batch_norm='batch'), "batch_norm='batch' is unknown"),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        with pytest.raises(ValueError, match=message):
            GradCacheOptimWrapper(optimizer=optimizer, **config)
    built = build_optim_wrapper(
        model,
        dict(type='mmrank.GradCacheOptimWrapper', chunk=8, optimizer=dict(type='SGD', lr=0.1)),
    )
    assert isinstance(built, GradCacheOptimWrapper)
    name = 'mmrank.GradCacheAmpOptimWrapper'
    assert OPTIM_WRAPPERS.get(name) is GradCacheAmpOptimWrapper
