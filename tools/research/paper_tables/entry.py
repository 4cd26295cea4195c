"""A table or figure of a paper, and what can be said of it."""

from dataclasses import dataclass

from research.paper_tables.gpu_hours import Training

#: What can be said of a table, and how it is shown.
STATES = {
    'here': 'run here as published, to its end, by the command',
    'small': 'run here on small data, to its end, by the command',
    'ready': 'the command runs it on small data; not run to its end here yet',
    'data': 'runnable with the named data and GPU hours; not run here',
    'out': 'left out: it shows no result',
}
#: States in which the tool runs the commands.
RUNNABLE = ('here', 'small', 'ready')
#: States of which results are on record.
RUN = ('here', 'small')
#: Where results are that the tool itself has made.
PAGE = 'docs/pages/results/papers.md'


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper.

    Attributes:
        name: ``paper/table2``, or ``paper/table2@data`` for a further way to make it.
        title: What it shows.
        state: One of :data:`STATES`.
        commands: What runs it, one after the other, with ``python`` left out; with ``data`` the
            first of the trainings that it takes. A word
            with ``*`` stands for the one file that it matches then.
        needs: Data that has to be there.
        note: What differs from the paper, or why it is not there.
        results: File of this repository with what came out; for :data:`RUN`.
        trainings: At the published size, where it takes any.
    """

    name: str
    title: str
    state: str
    commands: tuple[str, ...] = ()
    needs: str = ''
    note: str = ''
    results: str = ''
    trainings: tuple[Training, ...] = ()

    @property
    def gpu_hours(self) -> float:
        """Hours at the published size on one GPU, an estimate; or 0."""
        return sum(x.hours for x in self.trainings)


def of_paper(paper: str, *rows: PaperTable) -> list[PaperTable]:
    """The rows with the name of the paper before theirs."""
    return [PaperTable(**{**vars(row), 'name': f'{paper}/{row.name}'}) for row in rows]
