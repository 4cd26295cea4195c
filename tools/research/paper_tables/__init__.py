"""Every table and figure of the four papers: what makes it here.

A paper has a file, with a row for each of its tables and figures. To add one, append a row there; a
second way to make a table, on other data, is a row
named ``table2@grocery``.
"""

from research.paper_tables import in_batch, isogclr, soprc, stable_ap
from research.paper_tables.entry import PaperTable

TABLES = [*stable_ap.TABLES, *soprc.TABLES, *isogclr.TABLES, *in_batch.TABLES]


def table_named(name: str) -> PaperTable:
    """The table of a name."""
    return {table.name: table for table in TABLES}[name]
