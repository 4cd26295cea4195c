"""Configs of small models of embeddings, shared by tests."""

CONV = dict(type='mmrank.SmallConvNet', in_channels=3, channels=8, num_blocks=2)
POOL = dict(type='mmpretrain.GlobalAveragePooling')
TEXT = dict(type='mmrank.TextTransformer', channels=8, num_layers=1, num_heads=2, max_length=20)
CONTRAST_HEAD = dict(type='mmrank.ImageTextContrastHead')
IN_BATCH_HEAD = dict(type='mmrank.ImageTextInBatchHead')


def dual_encoder(loss, head=CONTRAST_HEAD, **settings):
    """A model of images and texts with a loss, given as a config, or as a name of mmrank."""
    if isinstance(loss, str):
        loss = dict(type=f'mmrank.{loss}')
    config = dict(
        type='mmrank.ImageTextDualEncoder',
        image_encoder=[CONV, POOL],
        image_channels=8,
        text_encoder=TEXT,
        embed_channels=6,
        head=dict(head, loss=loss),
    )
    return {**config, **settings}


def table(size, channels=4):
    """A tower of an embedding for each entity."""
    return dict(type='mmrank.EmbeddingTower', num_entities=size, channels=channels)


def two_tower(left, right, loss=None, channels=4, **settings):
    """Two towers, each given as a config, or as its number of entities."""
    towers = [table(x, channels) if isinstance(x, int) else x for x in (left, right)]
    config = dict(
        type='mmrank.TwoTower',
        left=towers[0],
        right=towers[1],
        loss=loss or dict(type='mmrank.InBatchLoss'),
    )
    return {**config, **settings}
