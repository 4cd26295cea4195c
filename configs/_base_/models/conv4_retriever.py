# Four convolution blocks and a linear embedding, for 28 x 28 grey images.
model = dict(
    type='mmrank.EmbeddingRetriever',
    image_encoder=[
        dict(type='mmrank.SmallConvNet', channels=32),
        dict(type='mmpretrain.GlobalAveragePooling'),
        dict(
            type='mmpretrain.LinearNeck',
            in_channels=32,
            out_channels=64,
            norm_cfg=None,
            act_cfg=None),
    ],
    head=dict(type='mmrank.RetrievalHead'))
