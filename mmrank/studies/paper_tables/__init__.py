"""Every table and figure of the four papers: what makes it here.

A paper has a file, with a row for each of its tables and figures. To add one,
append a row there; a second way to make a table, on other data, is a row
named ``table2@grocery``.
"""
