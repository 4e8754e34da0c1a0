"""Similar submissions: how much of one submission's own work is in another one, and where. It is evidence for a person.

What all learners received does not count, and neither does what a third of the class has: the one usual answer. All runs of tokens
are compared: winnowing, which selects some, would only save memory that a class does not need.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from course_lib.grading.integrity.documents import ANSWER, CODE, GRAM, GRAPH, WEIGHTS, Document

Submissions = Mapping[str, Sequence[Document]]
Spans = tuple[tuple[int, int], ...]

# Of a document's own tokens, in common with one other submission. Measured on the labs: solutions written independently have at most
# 0.5, copies with other names, comments and another order at least 0.8.
SHARE = 0.6
LEAST = {CODE: 40, ANSWER: 12, GRAPH: 8, WEIGHTS: 1}  # tokens in common
_USUAL_SHARE = 1 / 3  # of the class
_USUAL_LEAST = {CODE: 5, ANSWER: 5, GRAPH: 2, WEIGHTS: 2}  # submissions that may have the same without that it is usual
_SMALLEST_CLASS = {CODE: 2, ANSWER: 2, GRAPH: 4, WEIGHTS: 4}  # two equal exports do not show whether everybody's are equal


@dataclass(frozen=True)
class Match:
    """Two submissions: of a document of one of them, most of the own part is in the other.

    Attributes:
        students: in order. The second may be of an earlier class, or the reference.
        documents: of both, the ones with the most in common.
        share, tokens: in common: the share of the own tokens of one of the documents, and their number.
        spans: what is in common, in the text of each document.
    """

    students: tuple[str, str]
    documents: tuple[Document, Document] = field(repr=False)
    share: float
    tokens: int
    spans: tuple[Spans, Spans] = field(repr=False)

    @property
    def turned(self) -> Match:
        """The same with the second submission first."""
        (one, other), (first, second), (left, right) = self.students, self.documents, self.spans
        return replace(self, students=(other, one), documents=(second, first), spans=(right, left))

    @property
    def reading(self) -> str:
        """What is in common, in a few words."""
        first, second = (one.name for one in self.documents)
        where = first if first == second else f"{first} and {second}"
        units = {CODE: "tokens", ANSWER: "words", GRAPH: "nodes", WEIGHTS: "file"}[self.documents[0].kind]
        return f"{where}: {self.share:.0%} in common, {self.tokens} {units}"


def similar(submissions: Submissions, others: Submissions | None = None, given: Iterable[Document] = ()) -> tuple[Match, ...]:
    """Pairs of submissions of which one is mostly in the other, those with the most in common first.

    Args:
        submissions: of a class, by student.
        others: submissions of earlier classes and the reference. They are not compared with each other.
        given: what all learners received.
    """
    others = others or {}
    found = [match for kind in GRAM for match in _of_kind(kind, submissions, others, given)]
    return tuple(sorted(found, key=lambda match: (-match.share, -match.tokens, match.students)))


def groups(matches: Iterable[Match], of_class: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Submissions that are connected by matches, those of the class first."""
    joined: dict[str, set[str]] = {}
    for match in matches:
        both = set[str]().union(*(joined.get(student, {student}) for student in match.students))
        joined |= dict.fromkeys(both, both)
    distinct = {tuple(sorted(one, key=lambda name: (name not in of_class, name))) for one in map(frozenset, joined.values())}
    return tuple(sorted(distinct))


def _of_kind(kind: str, submissions: Submissions, others: Submissions, given: Iterable[Document]) -> Iterator[Match]:
    everybody = {**others, **submissions}
    documents = {name: [one for one in found if one.kind == kind] for name, found in everybody.items()}
    if len(everybody) < _SMALLEST_CLASS[kind]:
        return
    all_grams = {name: set[int]().union(*(one.grams for one in found)) for name, found in documents.items()}
    owners = Counter(gram for grams in all_grams.values() for gram in grams)
    usual = max(_USUAL_LEAST[kind], _USUAL_SHARE * len(everybody))
    ignored = {gram for gram, count in owners.items() if count > usual}
    ignored.update(gram for one in given if one.kind == kind for gram in one.grams)
    having = defaultdict(set)
    for name, grams in all_grams.items():
        for gram in grams - ignored:
            if owners[gram] > 1:
                having[gram].add(name)
    best: dict[tuple[str, str], Match] = {}
    for student in submissions:
        for document in documents[student]:
            own = document.grams.keys() - ignored
            size = len(_places(document, own))
            common = defaultdict(set)
            for gram in own & having.keys():
                for name in having[gram] - {student}:
                    common[name].add(gram)
            for name, grams in common.items():
                count = len(_places(document, grams))
                if count < max(LEAST[kind], SHARE * size):
                    continue
                match = _match((student, name), document, documents[name], grams, count / size)
                if name in submissions and name < student:
                    match = match.turned
                if match.students not in best or match.tokens > best[match.students].tokens:
                    best[match.students] = match
    yield from best.values()


def _match(students: tuple[str, str], document: Document, others: Sequence[Document], grams: Set[int], share: float) -> Match:
    other = max(others, key=lambda one: len(grams & one.grams.keys()))
    common = grams & other.grams.keys()
    spans = _spans(document, common), _spans(other, common)
    return Match(students, (document, other), share, len(_places(document, common)), spans)


def _places(document: Document, grams: Iterable[int]) -> list[int]:
    size = GRAM[document.kind]
    return sorted({place for gram in grams for start in document.grams[gram] for place in range(start, start + size)})


def _spans(document: Document, grams: Iterable[int]) -> Spans:
    """Where these runs are in the text, joined where only space lies between them."""
    spans = list[tuple[int, int]]()
    last = -2
    for place in _places(document, grams):
        _, start, end = document.tokens[place]
        spans[-1:] = [(spans[-1][0], end)] if place == last + 1 else [*spans[-1:], (start, end)]
        last = place
    return tuple(spans)
