"""How long the papers' trainings take on a GPU: an estimate.

``images x GMAC of a forward pass / GMAC a second``. The denominator is that
of a published training: ResNet-50 at 224 x 224, TF32, 938 images/s on one
A100 of 80 GB (NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, README, "Training
performance", 21.03 container). Its backward passes are in it, so a forward pass stands for a whole
step. Not in it: reading images, which may
take longer, tests, and the loss, below 10 % of a step (stable AP, table 3). The GPUs of the papers
are slower: stable AP's table 3 has 839 ms a step,
which is 2.8 times the estimate.
"""

from dataclasses import dataclass

#: Images a second of the published training.
PUBLISHED_RATE = 938.0
#: GMAC of one forward pass of ResNet-50 at 224 x 224.
RESNET50 = 4.09
GPU = 'A100 80 GB, TF32'

#: GMAC of one forward pass for an image, by what is trained.
NETWORKS = {
    'ResNet-50, 224 px': RESNET50,
    # Layer 3 has the batch twice, layer 4 four times.
    'ResNet-50 with feature mixup, 224 px': 7.98,
    # A third more: a forward pass of the batch under the previous weights.
    'ResNet-50 with feature mixup and eq. 6, 224 px': 7.98 * 4 / 3,
    'ResNet-50 with eq. 6, 224 px': RESNET50 * 4 / 3,
    # Two views, and 512 or 2048 - 8192 - 8192 - 8192 after them.
    'two-view ResNet-18, 224 px': 2 * (1.81 + 0.138),
    'two-view ResNet-50, 224 px': 2 * (RESNET50 + 0.151),
    # 30 words: 42.5 M weights of the blocks for each.
    'ResNet-50, 256 px, and DistilBERT': 5.34 + 1.28,
    'RetinaNet, ResNet-50 FPN, 512 px': 52.0,
    'Faster R-CNN, ResNet-50 FPN, 512 px': 57.0,
    'ResNet-18 for CIFAR, 32 px': 0.557,
}


@dataclass(frozen=True)
class Training:
    """Trainings of one kind.

    Attributes:
        images: Images that one of them goes through, in millions.
        network: Key of :data:`NETWORKS`.
        count: How many there are in the table.
    """

    images: float
    network: str
    count: int = 1

    @property
    def hours(self) -> float:
        """Hours of all of them on one GPU, an estimate."""
        gmac = self.count * self.images * 1e6 * NETWORKS[self.network]
        return gmac / (PUBLISHED_RATE * RESNET50) / 3600

    def __str__(self) -> str:
        return (
            f'{self.count} x {self.images:.3g} M images, {self.network}, '
            f'{NETWORKS[self.network]:.2f} GMAC: {self.hours:.2g} h'
        )


def epochs(images: int, number: int) -> float:
    """Millions of images in some epochs of a data set."""
    return images * number / 1e6


def iterations(number: int, batch: int) -> float:
    """Millions of images in some iterations."""
    return number * batch / 1e6
