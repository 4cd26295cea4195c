# Three convolution blocks and a transformer on bytes, for 16 x 16 images and
# captions of up to 48 bytes.
model = dict(
    type='mmrank.ImageTextDualEncoder',
    image_encoder=[
        dict(
            type='mmrank.SmallConvNet', in_channels=3, channels=32,
            num_blocks=3),
        dict(type='mmpretrain.GlobalAveragePooling'),
    ],
    image_channels=32,
    text_encoder=dict(
        type='mmrank.TextTransformer', channels=32, num_layers=1, num_heads=4,
        max_length=50),
    embed_channels=32,
    zero_shot=dict(classes='cifar10', templates=('a photo of a {}', )),
    head=dict(type='mmrank.ImageTextContrastHead'))
