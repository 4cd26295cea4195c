"""Box heads of the second stage on listwise losses.

Imports mmdet only when a head is built.
"""
