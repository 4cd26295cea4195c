"""The models of a COCO table: their runs, figures and tables."""
