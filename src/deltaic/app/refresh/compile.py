"""A definition to what a refresh needs: its sources, its columns, and the way it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from sqlglot import exp

from deltaic.algebra.keys import Declared, Reference, keys
from deltaic.algebra.nodes import Node, Scan
from deltaic.algebra.prune import prune
from deltaic.algebra.quoting import quote
from deltaic.algebra.reasons import Code, NotLowered, Reason, too_deep
from deltaic.algebra.recursion import PREFIX, Component
from deltaic.algebra.trees import sources as sources_of
from deltaic.algebra.trees import walk
from deltaic.app.catalogs.catalog import Catalog
from deltaic.app.catalogs.live import LiveTable
from deltaic.app.refresh.columns import is_collated, with_columns
from deltaic.app.refresh.own_text import over
from deltaic.app.refresh.recursive_text import Recursive, find_recursion, pinned_to_dred
from deltaic.app.refresh.sources import Source, SourceCatalog, UniqueOf
from deltaic.app.refresh.trial import other_rows
from deltaic.app.values.definition import Definition
from deltaic.app.values.properties import INTERVAL, KEY, REFERS, references_in
from deltaic.app.values.settings import Settings
from deltaic.delta.dred import Of, relation_of
from deltaic.errors import (
    DeltaicError,
    DependencyError,
    NameProblem,
    ParseError,
    Position,
    SourceError,
    UnsupportedError,
)
from deltaic.plan.choose import choose
from deltaic.plan.forms import Decided, decide
from deltaic.plan.maintain import Form, Maintenance
from deltaic.plan.refreshing import full_query
from deltaic.plan.steps import SourceRead, StoredView
from deltaic.spark.session import is_connect
from deltaic.sql.extent import check_extent, ctes_meant
from deltaic.sql.lower import lower
from deltaic.sql.moving import moves
from deltaic.sql.parse import Span, Text, parse_query
from deltaic.sql.render import stub
from deltaic.store.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Compiled:
    """`way` is how the view is kept, or the reason why it can only be recomputed."""

    definition: Definition
    schema: StructType
    sources: Mapping[str, Source]
    way: Maintenance | Reason
    node: Node | None
    tree: exp.Expr
    text: Text
    places: Mapping[tuple[int, int], str]
    """Where in the text each source is named."""
    stored_types: tuple[str, ...] = ()
    """Of all columns of the view's table, the hidden ones too; empty for a view without algebra."""
    unique: tuple[frozenset[str], ...] = ()
    """Keys of the view, as its query tells: sets of columns in which no two of its rows agree."""
    forms: Mapping[Form, float] = field(default_factory=dict)
    """Of a new view: what refreshes are thought to take, by what could be stored of its sets."""
    recursion: Recursive = field(default_factory=Recursive)
    moves: bool = False
    """Whether the answer may be another one though no source changed."""

    @property
    def stored(self) -> dict[str, str]:
        """The algebra's columns to those of the view's table."""
        assert isinstance(self.way, Maintenance)
        return dict(zip(self.way.root.columns, (*self.definition.columns, *self.way.hidden), strict=True))

    @property
    def live(self) -> dict[str, tuple[LiveTable, list[str]]]:
        """Its live sources, and their columns."""
        return {key: (s.live, [f.name for f in s.columns]) for key, s in self.sources.items() if s.live is not None}

    @property
    def used_columns(self) -> dict[str, list[tuple[str, str]]]:
        """Name and type of each source column that the answer depends on."""
        if self.node is None:
            return {k: [(f.name, f.type) for f in s.columns] for k, s in self.sources.items()}
        used: dict[str, dict[str, str]] = {}
        rules = [rule for c in self.recursion.components for p in c.predicates for rule in p.rules]
        for node in (part for tree in (prune(self.node), *rules) for part in walk(tree)):
            if isinstance(node, Scan) and not node.source.startswith(PREFIX):
                found = used.setdefault(node.source, {})
                found.update({c.origin: c.field.type for c in node.scanned})
        return {key: sorted(columns.items()) for key, columns in used.items()}


def compile_view(
    definition: Definition, catalog: Catalog, spark: SparkSession, unique_of: UniqueOf, *, use_rs: bool
) -> Compiled:
    """Raises for what is wrong with the query; what is merely not incremental gets a reason. For a new view it is
    decided what is stored of its sets."""
    try:
        return _compiled(definition, SourceCatalog(catalog, spark, unique_of), use_rs=use_rs)
    except RecursionError:
        raise UnsupportedError("the query is nested too deep", hint="Give a part of it a view of its own.") from None


def _compiled(definition: Definition, world: SourceCatalog, *, use_rs: bool) -> Compiled:
    tree, text = _parsed(definition.query, world)
    check_extent(tree, text)
    places = _places(tree, text, world)
    recursion = find_recursion(tree, text, world)
    schema = _schema(text, places, recursion, world)
    if definition.full_name.lower() in world.sources:
        raise DependencyError(f"{definition.full_name} cannot read itself")
    definition = with_columns(definition, schema)
    declared = declared_keys(definition, world.sources)
    references = declared_references(definition, world.sources)
    for name in definition.intervals:
        _named_source(f"{INTERVAL}{name}", name, (), world.sources)
    lowered = _lowered(definition, tree, text, world, schema)
    if definition.form is None and not isinstance(lowered, Reason):  # it is being made
        other = other_rows(lowered, tree, text, places, recursion, world)
        definition, lowered = replace(definition, by_text=other is not None), other or lowered
    if isinstance(lowered, Reason) and recursion.components and lowered.code is not Code.SEMANTICS:
        raise UnsupportedError(f"a recursive query cannot be kept or computed with {lowered.detail}", at=lowered.at)
    moving = isinstance(lowered, Reason) and _moves(text, world)
    if isinstance(lowered, Reason):
        _check_seen(tree, text, places, recursion, world)
    node: Node | None = None
    if definition.technique == "dred" and not isinstance(lowered, Reason) and not recursion.components:
        lowered, recursion = pinned_to_dred(lowered)
    if isinstance(lowered, Reason):
        decided = Decided(definition.form or definition.usual_form, lowered)
    else:
        components = recursion.components
        node = lowered
        decided = _decided(definition, node, components, world, schema, declared, references, use_rs=use_rs)
    definition, way = replace(definition, form=decided.form), decided.way
    types: tuple[str, ...] = ()
    if isinstance(way, Maintenance):
        found = _stored_types(way, world, schema)
        node, way, types = (None, found, ()) if isinstance(found, Reason) else (node, way, found)
    unique = _unique(node, definition, declared) if node is not None else ()
    prices = decided.prices
    return Compiled(
        definition, schema, dict(world.sources), way, node, tree, text, places, types, unique, prices, recursion, moving
    )


def _schema(text: Text, places: Mapping[Span, str], recursion: Recursive, world: SourceCatalog) -> StructType:
    """Names and types by Spark. Over Connect the session has the user's temporary views, which come before tables of
    the same name: so tables are given with their schemas, which no temporary view has."""
    bare = {
        span: ".".join(map(quote, key.split(".", 1)))
        for span, key in places.items()
        if not key.startswith("delta.`") and "." not in text.slice(span)
    }
    if bare and is_connect(world.analyzer.spark):
        with suppress(DeltaicError):  # the user's own text tells where it is wrong
            return world.analyzer.schema(recursion.stubbed(text.sql, bare))
    return world.analyzer.schema(recursion.stubbed(text.sql))


def _moves(text: Text, world: SourceCatalog) -> bool:
    columns = {field.name.lower(): field.type for source in world.sources.values() for field in source.columns}
    return moves(text, columns, world.is_builtin)


def _check_seen(
    tree: exp.Expr, text: Text, places: Mapping[Span, str], recursion: Recursive, world: SourceCatalog
) -> None:
    """All that a query reads must be a source: of what is read behind its back (by a function, by IDENTIFIER) nobody
    would know when it changes. So with empty relations in the place of its sources it must read no table."""
    stubs = {key: f"(SELECT * FROM {stub(source.columns)})" for key, source in world.sources.items()}
    read = world.analyzer.table_read(over(stubs, tree, text, places, recursion))
    if read is not None:
        raise UnsupportedError(
            f"the query reads {read} otherwise than by its name in FROM, and so nobody would know when that changes",
            hint="Name each table in FROM; not by IDENTIFIER, TABLE, table_changes or a function that reads it.",
        )


def declared_keys(definition: Definition, sources: Mapping[str, Source]) -> dict[str, tuple[frozenset[str], ...]]:
    """What is known of the sources' keys: those of views are known by their queries, those of tables are declared."""
    found = {key: source.keys for key, source in sources.items()}
    for name, columns in definition.keys.items():
        key = _named_source(f"{KEY}{name}", name, columns, sources)
        found[key] = (*found[key], frozenset(columns))
    return found


def declared_references(definition: Definition, sources: Mapping[str, Source]) -> tuple[Reference, ...]:
    found = []
    for name, text in definition.references.items():
        for here, other, there in references_in(text):
            if len(here) != len(there):
                raise NameProblem(f"{REFERS}{name}: {len(here)} columns cannot refer to {len(there)}")
            own = _named_source(f"{REFERS}{name}", name, here, sources)
            found.append(Reference(own, here, _named_source(f"{REFERS}{name}", other, there, sources), there))
    return tuple(found)


def _named_source(what: str, name: str, columns: Sequence[str], sources: Mapping[str, Source]) -> str:
    """The source that a property means, which must have the columns."""
    key = next((k for k in sources if name.lower() in (k, k.split(".", 1)[-1])), None)
    if key is None:
        hint = f"It reads {', '.join(sources)}. CREATE OR REPLACE MATERIALIZED VIEW gives a view other properties."
        raise NameProblem(f"{what}: the view reads no source {name}", hint=hint)
    there = {field.name.lower() for field in sources[key].columns}
    missing = [column for column in columns if column.lower() not in there]
    if missing:
        raise NameProblem(f"{what}: {key} has no column {', '.join(missing)}")
    return key


def _unique(node: Node, definition: Definition, declared: Declared) -> tuple[frozenset[str], ...]:
    """The keys of the view itself, for views that read it."""
    names = dict(zip(node.columns, definition.columns, strict=True))
    found = {frozenset(names[column] for column in key) for key in keys(node, declared) if key}
    return tuple(sorted(found, key=sorted))


def _parsed(query: str, world: SourceCatalog) -> tuple[exp.Expr, Text]:
    """Where a text cannot be parsed, Spark's own complaint is the better one."""
    try:
        return parse_query(query)
    except ParseError as problem:
        if problem.what.startswith("a query is expected"):
            raise
        world.analyzer.schema(query)
        raise


_READ_OTHERWISE = {
    "spark.sql.legacy.setopsPrecedence.enabled": "true",
    "spark.sql.legacy.ctePrecedencePolicy": "legacy",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.ansi.relationPrecedence": "true",
}
"""Settings under which Spark reads a query in another way than Deltaic."""


def _lowered(
    definition: Definition,
    tree: exp.Expr,
    text: Text,
    world: SourceCatalog,
    schema: StructType,
) -> Node | Reason:
    if (definition.settings.get("spark.sql.caseSensitive") or "false").lower() == "true":
        return Reason(Code.UNSUPPORTED_SYNTAX, "names that differ by case only, as the session allowed them")
    other = {key: value for key, value in _READ_OTHERWISE.items() if definition.settings.get(key, "").lower() == value}
    if other:
        told = ", ".join(f"{key} = {value}" for key, value in other.items())
        return Reason(Code.UNSUPPORTED_SYNTAX, f"what belongs together is otherwise under {told}")
    if definition.by_text:
        return Reason(Code.SEMANTICS, "taken apart, it gave other rows when it was made")
    try:
        lowered = lower(tree, text, world)
    except NotLowered as refusal:
        return refusal.reason
    except (PySparkException, ValueError, KeyError, IndexError) as problem:
        # valid SQL that the lowering stumbles over must not keep the view from being kept at all
        what = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        return Reason(Code.SEMANTICS, f"the query could not be lowered: {what}")
    others = _other_names(lowered.names, schema)
    if others is not None:
        return Reason(Code.SEMANTICS, others)
    return lowered.node


def _decided(
    definition: Definition,
    node: Node,
    components: tuple[Component, ...],
    world: SourceCatalog,
    schema: StructType,
    declared: Declared,
    references: tuple[Reference, ...],
    *,
    use_rs: bool,
) -> Decided:
    """How the view is kept. What is stored of its sets stays as it was decided when it was made."""
    if definition.technique == "recompute":
        return Decided(definition.form or definition.usual_form, Reason(Code.POLICY, "deltaic.technique is recompute"))
    technique = definition.technique
    if (definition.settings.get("spark.sql.legacy.statisticalAggregate") or "false").lower() == "true":
        technique = "base"  # a variance of one value is NaN then, which its stored parts do not tell
    parted = {name.lower() for name in definition.partitioned_by}
    named = enumerate(zip(definition.columns, schema.fields, strict=True))
    texts = frozenset(n for n, (name, f) in named if name.lower() in parted and f.dataType.typeName() == "string")

    def chosen(form: Form) -> Maintenance | Reason:
        return choose(
            node, technique, texts, form=form, declared=declared, references=references, components=components
        )

    if definition.form is not None:
        return Decided(definition.form, chosen(definition.form))
    rows = _sizes(world) if technique == "auto" and not components else None
    form = definition.usual_form
    if rows is None:
        return Decided(form, chosen(form))
    return decide(chosen, definition.counts, definition.strata, rows, here=use_rs)


def _sizes(world: SourceCatalog) -> dict[str, int] | None:
    """Rows of the sources, if they are known and worth a thought."""
    spark = world.analyzer.spark
    rows = {key: Log(source.ref, spark).snapshot().rows for key, source in world.sources.items()}
    known = {key: count for key, count in rows.items() if count is not None}
    worth = sum(known.values()) >= Settings.of(spark).full_rows
    return known if len(known) == len(rows) and worth else None


def _other_names(names: tuple[str, ...], schema: StructType) -> str | None:
    """The lowered query must have Spark's columns, by name too: a star may be read in another order."""
    if len(names) != len(schema.fields):
        return f"{len(names)} columns became of {len(schema.fields)} when lowered"
    for own, given in zip(names, schema.fields, strict=True):
        unnamed = own in ("scalarsubquery()", "expression")
        if own.lower() != given.name.lower() and not unnamed:
            return f"{given.name} became {own} when lowered"
    return None


def _stored_types(way: Maintenance, world: SourceCatalog, schema: StructType) -> tuple[str, ...] | Reason:
    """Spark must give the lowered query the types it gives the text, or it is not the same query."""
    reads = {
        key: SourceRead(s.key, s.relation, None, Log(s.ref, world.analyzer.spark).version(), live=s.live is not None)
        for key, s in world.sources.items()
        if key in sources_of(way.root)
    }
    names = StoredView("", None, {c: c for c in way.root.columns})
    for p in way.recursion.predicates if way.recursion else ():
        stand_in = world.analyzer.spark.sql(f"SELECT * FROM {stub(p.fields)}")
        stand_in.createOrReplaceTempView(relation_of(p.source, Of.NEW))
    try:
        found = world.analyzer.own_schema(full_query(way, reads, names))
    except RecursionError:
        return too_deep()
    except NotLowered as large:
        return large.reason
    except PySparkException as error:
        return Reason(Code.SEMANTICS, f"Spark does not accept the lowered query: {str(error).splitlines()[0]}")
    for hidden in found.fields[len(schema.fields) :]:
        if is_collated(hidden.dataType):
            return Reason(Code.UNGROUPABLE_TYPE, "a collated text would have to be stored, and Delta does not")
    for own, given in zip(found.fields, schema.fields, strict=False):
        # whether NULL may stand inside an array is no part of this: beside hidden rows it may
        if own.dataType.simpleString() != given.dataType.simpleString():
            return Reason(Code.SEMANTICS, f"{given.name} became {own.dataType.simpleString()} when lowered")
    return tuple(field.dataType.simpleString() for field in found.fields)


def _places(tree: exp.Expr, text: Text, world: SourceCatalog) -> dict[tuple[int, int], str]:
    """Every source that the text names, resolved; each must be a Delta table."""
    places: dict[tuple[int, int], str] = {}
    ctes = ctes_meant(tree)
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        parts = tuple(part.name for part in table.parts)
        if id(table) in ctes:
            continue
        start, end = table.parts[0].meta["start"], table.parts[-1].meta["end"] + 1
        at = text.position(start)
        if table.args.get("when") is not None or table.args.get("version") is not None:
            raise UnsupportedError("time travel inside a view's query", at=at)
        source = world.source(parts)
        if source is None:
            raise _no_source(parts, at, world)
        places[start, end] = source.key
    return places


def _no_source(parts: tuple[str, ...], at: Position, world: SourceCatalog) -> DeltaicError:
    name = ".".join(parts)
    try:
        is_there = world.catalog.spark.catalog.tableExists(".".join(quote(part) for part in parts))
    except PySparkException:  # the catalog has its name, and its folder is gone
        is_there = False
    schema = parts[-2] if len(parts) > 1 else world.analyzer.spark.catalog.currentDatabase()
    if is_there and not world.catalog.lost_its_folder(schema, parts[-1]):
        hint = "Store it as a Delta table, or make it a materialized view."
        return SourceError(f"{name} is not a Delta table or a materialized view", at=at, hint=hint)
    return NameProblem(f"there is no table or view {name}", at=at)


def pinned_text(compiled: Compiled, reads: Mapping[str, SourceRead]) -> str:
    """The user's own text with every source pinned to its version: how a view without algebra is computed."""
    pinned = {key: _pinned(source, reads[key]) for key, source in compiled.sources.items()}
    return over(pinned, compiled.tree, compiled.text, compiled.places, compiled.recursion)


def _pinned(source: Source, read: SourceRead) -> str:
    columns = (
        f"CAST(NULL AS {f.type}) AS {quote(f.name)}" if f.name in read.missing else quote(f.name)
        for f in source.columns
    )  # fmt: skip
    return f"(SELECT {', '.join(columns)} FROM {read.at(read.new)}{read.where})"
