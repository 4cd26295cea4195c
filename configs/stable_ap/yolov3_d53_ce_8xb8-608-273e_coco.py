# mmdet's YOLOv3 on its own losses, one sigmoid a class: the twin of
# yolov3_d53_stable-ap_8xb8-608-273e_coco.py. The stable AP paper's row
# "YOLOv3, DarkNet-53, 608 x 608": 33.0 mAP on COCO test-dev.
_base_ = 'mmdet::yolo/yolov3_d53_8xb8-ms-608-273e_coco.py'
