"""Labels of other tools: YOLO's text files, VOC's XML files and tables, with their pictures."""
