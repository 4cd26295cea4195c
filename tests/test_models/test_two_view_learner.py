"""The self-supervised algorithm, alone and in a runner."""

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DefaultScope

pytest.importorskip('mmpretrain')

from mmpretrain.structures import DataSample
from tiny_runner import loader, make

from mmrank.registry import MODELS

SAMPLES, SIZE = 24, 8
LOSSES = {
    'InfoNCELoss': {},
    'FlatCLRLoss': {},
    'SimCoLoss': {},
    'SpectralContrastiveLoss': {},
    'VICRegLoss': {},
    'BarlowTwinsLoss': {},
    'SogCLRLoss': dict(num_samples=SAMPLES),
    'ISogCLRLoss': dict(num_samples=SAMPLES, eta=0.1),
}
NECK = dict(
    type='mmpretrain.NonLinearNeck',
    in_channels=8,
    hid_channels=16,
    out_channels=16,
    num_layers=3,
    with_last_bn=False,
    norm_cfg=dict(type='BN1d'),
)


def model(loss='ISogCLRLoss', neck=NECK, **kwargs):
    return dict(
        type='mmrank.TwoViewLearner',
        backbone=dict(type='mmrank.SmallConvNet', in_channels=3, channels=8, num_blocks=2),
        neck=neck,
        loss=dict(type=f'mmrank.{loss}', **LOSSES[loss]),
        **kwargs,
    )


def batch(n=6):
    g = torch.Generator().manual_seed(0)
    views = list(torch.randn(2, n, 3, SIZE, SIZE, generator=g))
    samples = []
    for i in range(n):
        sample = DataSample(metainfo=dict(sample_idx=3 * i))
        samples.append(sample)
    return views, samples


def test_needs_no_default_scope():
    # Any scope but the host's, as a detector's config leaves it behind.
    with DefaultScope.overwrite_default_scope('mmengine'):
        net = MODELS.build(model())
    preprocessor = type(net.data_preprocessor)
    assert preprocessor.__name__ == 'SelfSupDataPreprocessor'


def test_the_loss_gets_the_numbers_of_its_images():
    net = MODELS.build(model()).train()
    net(*batch(), mode='loss')
    seen = net.loss_module.temperature.seen.nonzero()[:, 0].tolist()
    assert seen == [0, 3, 6, 9, 12, 15]


@pytest.mark.parametrize('neck', [NECK, None])
def test_embeddings_are_those_of_the_network(neck):
    net = MODELS.build(model('InfoNCELoss', neck=neck)).eval()
    views, samples = batch()
    got = net(views, samples, mode='loss')['loss']
    features = [net.backbone(x) for x in views]
    rows = [net.neck(x)[0] if neck else x[-1].mean((2, 3)) for x in features]
    torch.testing.assert_close(got, net.loss_module(*rows))


def test_features():
    net = MODELS.build(model()).eval()
    (view, _), samples = batch()
    expected = net.backbone(view)[-1].mean((2, 3))
    for given in (samples, None):
        out = net(view, given, mode='predict')
        torch.testing.assert_close(torch.stack([x.feature for x in out]), expected)
    assert out[0].feature.shape == (8,)
    assert isinstance(net(view), tuple)


def test_bad_input_is_refused():
    net = MODELS.build(model())
    views, samples = batch()
    for inputs, number in ((views[0], 1), (views[:1], 1), (views * 2, 4)):
        with pytest.raises(ValueError, match=f'got {number}; put .*MultiView'):
            net(inputs, samples, mode='loss')
    with pytest.raises(ValueError, match='have no sample_idx'):
        net(views, [DataSample() for _ in range(6)], mode='loss')
    with pytest.raises(ValueError, match='leave MultiView out'):
        net(views, samples, mode='predict')
    with pytest.raises(RuntimeError, match='Invalid mode'):
        net(views, samples, mode='other')


class Pictures(BaseDataset):
    """Noise around one colour for each class."""

    def __init__(self, size, seed=0):
        self.size, self.seed = size, seed
        super().__init__(serialize_data=False, metainfo=dict(classes='abc'))

    def load_data_list(self):
        return [dict(gt_label=i % 3) for i in range(self.size)]

    def prepare_data(self, idx):
        info = self.get_data_info(idx)
        g = torch.Generator().manual_seed(1000 * self.seed + idx)
        image = 60 * torch.rand(3, SIZE, SIZE, generator=g)
        image[info['gt_label']] += 150
        sample = DataSample(metainfo=dict(sample_idx=info['sample_idx']))
        sample.set_gt_label(info['gt_label'])
        return dict(inputs=image.to(torch.uint8), data_samples=sample)


def runner(work_dir, epochs, resume=False):
    both = dict(type='mmrank.IndexedConcatDataset', datasets=[Pictures(SAMPLES), Pictures(12, 1)])
    preprocessor = dict(type='mmrank.TwoViewPreprocessor', mean=[90.0] * 3, std=[60.0] * 3)
    return make(
        model(data_preprocessor=preprocessor),
        work_dir,
        Pictures(SAMPLES),
        train_dataloader=loader(Pictures(SAMPLES), seed=3),
        val_dataloader=loader(both, shuffle=False),
        train_cfg=dict(by_epoch=True, max_epochs=epochs, val_interval=4),
        val_cfg=dict(),
        val_evaluator=[dict(type='mmrank.KNNMetric', k=5), dict(type='mmrank.LinearProbeMetric')],
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9)),
        custom_hooks=[
            dict(type='mmrank.SampleIndexHook'),
            dict(type='mmrank.RankingMonitorHook', interval=1),
            dict(type='mmrank.RNGStateHook'),
        ],
        default_hooks={},
        default_scope='mmpretrain',
        resume=resume,
        cfg=Config(dict(work_dir=str(work_dir))),
    )


def test_in_a_runner(tmp_path):
    whole = runner(tmp_path / 'whole', 4)
    whole.train()
    scalars = whole.message_hub.log_scalars
    for key in ('tau_mean', 'tau_min', 'log_s', 'negatives', 'pos_score'):
        assert len(scalars[f'train/{key}'].data[0]) == 12, key
    assert scalars['val/knn/accuracy'].current() > 80
    assert scalars['val/linear/accuracy'].current() > 80
    # A resumed run continues with the same views and temperatures.
    runner(tmp_path / 'parts', 2).train()
    resumed = runner(tmp_path / 'parts', 4, resume=True)
    resumed.train()
    expected = whole.model.state_dict()
    tau = expected['loss_module.temperature.tau']
    assert tau.unique().numel() == SAMPLES
    for key, values in resumed.model.state_dict().items():
        assert torch.equal(values, expected[key]), key
