"""Dense heads on listwise losses. Imports mmdet only when a head is built."""
