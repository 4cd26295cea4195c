# ResNet-50 of ImageNet and DistilBERT, each with a linear layer to 256 channels.
# Needs `pip install transformers`, and a network or cached weights.
model = dict(
    type='mmrank.ImageTextDualEncoder',
    image_encoder=[
        dict(
            type='mmpretrain.ResNet',
            depth=50,
            init_cfg=dict(
                type='Pretrained', checkpoint='torchvision://resnet50')),
        dict(type='mmpretrain.GlobalAveragePooling'),
    ],
    image_channels=2048,
    text_encoder=dict(
        type='mmrank.HuggingFaceTextEncoder',
        name_or_path='distilbert-base-uncased',
        max_length=30),
    embed_channels=256,
    head=dict(type='mmrank.ImageTextContrastHead'))
