"""All tables and figures, by name."""

from mmrank.studies.paper_tables import in_batch, isogclr, soprc, stable_ap
from mmrank.studies.paper_tables.entry import PaperTable

TABLES = [
    *stable_ap.TABLES,
    *soprc.TABLES,
    *isogclr.TABLES,
    *in_batch.TABLES,
]


def table_named(name: str) -> PaperTable:
    """The table of a name.

    Raises:
        KeyError: If there is none.
    """
    return {table.name: table for table in TABLES}[name]
