"""What is recursive in a query's text, which Spark cannot be asked about as it stands: it knows UNION ALL only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pyspark.errors import PySparkException
from sqlglot import exp

from deltaic.algebra.nodes import Node
from deltaic.algebra.quoting import quote
from deltaic.algebra.reasons import Code, NotLowered, NotResolved, Reason
from deltaic.algebra.recursion import Component, Predicate, as_predicate, column
from deltaic.delta.dred import Of, relation_of
from deltaic.errors import NameProblem, UnsupportedError
from deltaic.spark.analyzer import query_error
from deltaic.sql.lower import lower
from deltaic.sql.parse import Span, Text, replaced
from deltaic.sql.recursive import has_recursion
from deltaic.sql.scope import Catalog, Derived


@dataclass(frozen=True)
class Recursive:
    """`defined`: where in the text predicates are defined."""

    components: tuple[Component, ...] = ()
    defined: Mapping[Span, Derived] = field(default_factory=dict)

    def stubbed(self, sql: str, others: Mapping[Span, str] = MappingProxyType({})) -> str:
        """The text with queries of no rows in the place of recursive ones; what follows them stays on its line.
        `others` are put in outside of these."""
        stubs = {
            span: text for span, text in others.items() if not any(a <= span[0] < b for a, b in self.defined)
        }  # fmt: skip
        for (start, end), d in self.defined.items():
            listed = ", ".join(f"CAST(NULL AS {kind}) AS {quote(n)}" for kind, n in zip(d.types, d.names, strict=True))
            stubs[start, end] = "\n" * sql.count("\n", start, end) + f"SELECT {listed}"
        return replaced(sql, stubs)

    @property
    def places(self) -> dict[Span, str]:
        """Queries that read predicates which are evaluated, in the place of those that define them."""
        found = {}
        for span, d in self.defined.items():
            listed = ", ".join(f"{column(n)} AS {quote(name)}" for n, name in enumerate(d.names))
            source = Predicate(d.number, d.name, d.types).source
            found[span] = f"SELECT {listed} FROM {relation_of(source, Of.NEW)}"
        return found


def find_recursion(tree: exp.Expr, text: Text, catalog: Catalog) -> Recursive:
    """The predicates that a query defines; none, if it has no recursion or one that Spark runs itself."""
    if not any(has_recursion(clause) for clause in tree.find_all(exp.With)):
        return Recursive()
    try:
        lowered = lower(tree, text, catalog)
    except NotResolved as refusal:
        raise NameProblem(refusal.reason.detail, at=refusal.reason.at, hint=refusal.reason.hint) from None
    except NotLowered as refusal:
        reason = refusal.reason
        if reason.code is Code.RECURSION:
            return Recursive()
        if reason.code is Code.SEMANTICS:
            raise NameProblem(reason.detail, at=reason.at) from None
        what = f"a recursive query must be one that Deltaic can take apart, and this is not one: {reason.detail}"
        raise UnsupportedError(what, at=reason.at, hint=reason.hint) from None
    except PySparkException as problem:
        raise query_error(problem, text.sql) from None
    return Recursive(lowered.components, lowered.defined)


def pinned_to_dred(query: Node) -> tuple[Node | Reason, Recursive]:
    """A view without recursion that is to be kept by DRed all the same, as the paper compares it with counting."""
    found = as_predicate(query)
    if found is None:
        detail = "deltaic.technique is 'dred', which without recursion is for DISTINCT and UNION of joins"
        return Reason(Code.TECHNIQUE, detail, hint="Leave deltaic.technique out, or choose another."), Recursive()
    return found[0], Recursive((found[1],))
