# mmdet's SSD512 on its softmax, the twin of
# ssd512_vgg16_stable-ap_24e_coco.py. The stable AP paper's row "SSD, VGG-16,
# 513 x 513": 28.8 mAP on COCO test-dev.
_base_ = 'mmdet::ssd/ssd512_coco.py'
