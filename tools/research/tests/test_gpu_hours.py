"""The cost of the papers' networks, counted, and hours by hand."""

from itertools import pairwise

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from paper_tables import NETWORKS, PUBLISHED_RATE, RESNET50, Training


def gmac(run, *inputs):
    """Products of a forward pass, nothing computed."""
    with FlopCounterMode(display=False) as counter:
        run(*inputs)
    return counter.get_total_flops() / 2e9


@pytest.fixture(scope='module')
def networks():
    models = pytest.importorskip('torchvision').models
    with torch.device('meta'):
        return models.resnet50(), models.resnet18()


def test_networks_cost_what_is_said(networks):
    resnet50, resnet18 = networks
    small, large = (torch.empty(1, 3, side, side, device='meta') for side in (224, 256))
    assert gmac(resnet50, small) == pytest.approx(RESNET50, rel=0.01)

    def mixed(x):
        """The batch doubles before layers 3 and 4."""
        x = resnet50.maxpool(resnet50.conv1(x))
        x = resnet50.layer2(resnet50.layer1(x))
        x = resnet50.layer3(x.repeat(2, 1, 1, 1))
        resnet50.layer4(x.repeat(2, 1, 1, 1))

    name = 'ResNet-50 with feature mixup, 224 px'
    assert gmac(mixed, small) == pytest.approx(NETWORKS[name], rel=0.01)
    for name, network in (('18', resnet18), ('50', resnet50)):
        width = network.fc.in_features
        sizes = (width, 8192, 8192, 8192)
        projector = sum(a * b for a, b in pairwise(sizes)) / 1e9
        cost = 2 * (gmac(network, small) + projector)
        known = NETWORKS[f'two-view ResNet-{name}, 224 px']
        assert cost == pytest.approx(known, rel=0.01)
    # Six blocks: four products of 768 x 768 and two of 768 x 3072 a word.
    words = 30 * 6 * (4 * 768**2 + 2 * 768 * 3072) / 1e9
    known = NETWORKS['ResNet-50, 256 px, and DistilBERT']
    assert gmac(resnet50, large) + words == pytest.approx(known, rel=0.01)


def test_hours_by_hand():
    training = Training(11.2, 'ResNet-50, 224 px', 10)
    by_hand = 10 * 50_000 * 224 / PUBLISHED_RATE / 3600
    assert training.hours == pytest.approx(by_hand)
    assert '10 x 11.2 M images' in str(training)
