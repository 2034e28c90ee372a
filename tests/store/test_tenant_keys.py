"""What a distributed PostgreSQL needs of the SQL, as PostgreSQL's own parser reads it: tenant_id leads every key and
binds every table in every statement, and nothing relies on what only one server has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pglast import ast, parse_sql
from pglast.enums import ConstrType

from surefoot.store.postgres.statements import PARTS, Shape, Statements
from surefoot.store.sqlfile import FOLDER, queries

COLUMN = "tenant_id"
WHOLE_DATABASE = {"meta", "schema_migration"}
"""Tables that belong to no tenant: of the database itself."""
ACROSS = {
    "orphans": "`doctor` looks at all tenants, each by its own",
    "token_tenants": "a server's start asks whose tokens there are",
}
"""Queries that begin at no tenant, and why."""
OPENING = {
    "probe": "before anything else: may this server be relied upon",
    "has_schema_migration": "before a migration: was there one before",
    "count_tables": "before a migration: whose tables are here",
    "notify": "whether anybody listens; polling stands behind it",
    "worker_owners": "sessions are an accelerator; leases end without them",
    "workers_take": "what the doctor is told, as the count of workers",
    "counts": "which workers have a session, for a figure that nothing is decided on",
}
"""Queries that ask the server about itself."""
SESSION = {
    "session_settings": "time limits; behind a pooler transaction_settings takes its place",
    "writer_settings": "how the server plans, on a direct connection: the answers are the same without it",
    "transaction_settings": "ends with its transaction",
    "listen": "polling stands behind it",
    "migration_lock": "ends with its transaction",
}
OF_ONE_SERVER = (
    "nextval",
    "currval",
    "setval",
    "lastval",
    "pg_advisory",
    "pg_try_advisory",
    "txid_",
    "pg_current_xact",
)
SYSTEM = ("pg_class", "pg_stat_activity")
CHOSEN = {"load_runs": ("run_get", "runs_list", "runs_of_parent"), "load_steps": ("step_get", "steps_acted")}
"""Queries with another one inside, and some that stand there."""

_Scope = ast.SelectStmt | ast.UpdateStmt | ast.DeleteStmt


def _statements() -> Mapping[str, str]:
    """All there is, as the server gets it: queries by name, and the batches with every part."""
    made, texts, found = Statements(of_door=False), queries("postgres"), {}
    for name, text in texts.items():
        if name not in ("now_once", "now_each", "run_inserted") and "rows AS new" not in text and "{" not in text:
            found[name] = made.named(name).sql
    for name, choices in CHOSEN.items():
        found |= {f"{name} {chosen}": made.named(name, chosen).sql for chosen in choices}
    for rows in (0, 1, 2):
        parts = tuple((name, rows) for name in PARTS)
        for head in ("append_guard", "run_insert"):
            found[f"batch {head} {rows}"] = made.batch(Shape(head == "run_insert", ((head, rows), *parts))).sql
    return found


STATEMENTS = _statements()
MIGRATIONS = {path.name: path.read_text() for path in sorted(Path(FOLDER, "postgres", "migrations").glob("*.sql"))}


def _nodes(node: object) -> Iterator[ast.Node]:
    """A node and all below it."""
    if isinstance(node, ast.Node):
        yield node
        for slot in node:
            yield from _nodes(getattr(node, slot))
    elif isinstance(node, tuple):
        for one in node:
            yield from _nodes(one)


def _text(value: object) -> str:
    """A name in the tree."""
    assert isinstance(value, str)
    return value


def _all(value: tuple[ast.Node, ...] | None) -> tuple[ast.Node, ...]:
    """The members of a list in the tree."""
    return value or ()


def _table(value: object) -> str:
    assert isinstance(value, ast.RangeVar)
    return _text(value.relname)


def _tables(sql: str) -> set[str]:
    return {_table(node) for node in _nodes(parse_sql(sql)) if isinstance(node, ast.RangeVar)}


def _created() -> dict[str, list[tuple[str, ...]]]:
    """Each table's keys and indexes, as their columns."""
    keys: dict[str, list[tuple[str, ...]]] = {}
    for text in MIGRATIONS.values():
        for node in _nodes(parse_sql(text)):
            if isinstance(node, ast.CreateStmt):
                parts = [part for part in _all(node.tableElts) if isinstance(part, ast.Constraint)]
                keys[_table(node.relation)] = [_names(part.keys) for part in parts if part.keys]
            elif isinstance(node, ast.IndexStmt):
                keys[_table(node.relation)].append(_names(node.indexParams))
    return keys


def _names(value: tuple[ast.Node, ...] | None) -> tuple[str, ...]:
    """The names in a list: strings, fields of a column, columns of an index, targets of an insert."""
    found = []
    for one in _all(value):
        if isinstance(one, ast.String):
            found.append(_text(one.sval))
        elif isinstance(one, ast.IndexElem | ast.ResTarget):
            found.append(str(one.name))
    return tuple(found)


TENANTS_TABLES = set(_created()) - WHOLE_DATABASE


def _untied(sql: str, tables: set[str]) -> list[str]:
    """Tables of tenants that a statement reads or writes without saying whose rows it means."""
    return [problem for root in parse_sql(sql) for problem in _untied_below(root.stmt, tables)]


def _untied_below(node: object, tables: set[str]) -> Iterator[str]:
    for found in _nodes(node):
        if isinstance(found, ast.InsertStmt):
            yield from _untied_insert(found, tables)
        elif isinstance(found, _Scope):
            yield from _untied_here(found, tables)


def _untied_insert(node: ast.InsertStmt, tables: set[str]) -> Iterator[str]:
    table = _table(node.relation)
    infer = node.onConflictClause.infer if node.onConflictClause is not None else None
    if table in tables and COLUMN not in _names(node.cols):
        yield f"insert into {table} without {COLUMN}"
    if table in tables and infer is not None and _names(infer.indexElems)[0] != COLUMN:
        yield f"a conflict of {table} that is not found by {COLUMN}"


def _untied_here(node: _Scope, tables: set[str]) -> Iterator[str]:
    sources: list[object] = [node.usingClause if isinstance(node, ast.DeleteStmt) else node.fromClause]
    if not isinstance(node, ast.SelectStmt):
        sources.append(node.relation)
    ranges = [found for found in _own(tuple(sources)) if isinstance(found, ast.RangeVar)]
    names = {_text(found.alias.aliasname) if found.alias else _table(found): _table(found) for found in ranges}
    tied = {
        name
        for where in (node.whereClause, *sources)
        for found in _own(where)
        if isinstance(found, ast.A_Expr) and _names(found.name) == ("=",)
        for name in _tied_by(found, names)
    }
    for alias, table in names.items():
        if table in tables and alias not in tied:
            yield f"{table} as {alias}"


def _own(node: object) -> Iterator[ast.Node]:
    """A node and what is below it, without the queries inside it and without what an OR leaves open."""
    if isinstance(node, ast.SubLink | ast.RangeSubselect):
        return
    if isinstance(node, ast.BoolExpr) and node.boolop != 0:
        return
    if isinstance(node, ast.Node):
        yield node
        for slot in node:
            yield from _own(getattr(node, slot))
    elif isinstance(node, tuple):
        for one in node:
            yield from _own(one)


def _tied_by(equality: ast.A_Expr, names: Mapping[str, str]) -> Iterator[str]:
    """The aliases that an equation of tenants ties to something else."""
    sides = [_column(equality.lexpr), _column(equality.rexpr)]
    for own, other in (sides, sides[::-1]):
        if own is not None and own[-1] == COLUMN and (other is None or other[-1] == COLUMN):
            if len(own) == 2:
                yield own[0]
            elif len(names) == 1:
                yield from names


def _column(node: object) -> tuple[str, ...] | None:
    return _names(node.fields) if isinstance(node, ast.ColumnRef) else None


def test_a_statement_that_names_no_tenant_is_found() -> None:
    run = {"run", "step"}
    assert _untied("SELECT * FROM run WHERE id = $1", run) == ["run as run"]
    assert _untied("SELECT * FROM run WHERE tenant_id = $1 OR id = $2", run) == ["run as run"]
    assert _untied("SELECT * FROM run r JOIN step ON step.run_id = r.id WHERE r.tenant_id = $1", run) == [
        "step as step"
    ]
    assert _untied("UPDATE run SET a = 1 WHERE EXISTS (SELECT 1 FROM step WHERE tenant_id = $1)", run) == ["run as run"]
    assert _untied("DELETE FROM step USING run WHERE run.tenant_id = step.tenant_id", run) == []
    assert _untied("WITH x AS (DELETE FROM step RETURNING 1) SELECT * FROM x", run) == ["step as step"]
    assert _untied("INSERT INTO run (id) VALUES (1)", run) == ["insert into run without tenant_id"]
    assert _untied("INSERT INTO run (tenant_id, id) VALUES ($1, 1) ON CONFLICT (id) DO NOTHING", run) != []


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_says_whose_rows_it_means(name: str) -> None:
    untied = _untied(STATEMENTS[name], TENANTS_TABLES)
    if name in ACROSS:
        assert untied, f"{name} begins at a tenant: take it out of ACROSS"
    else:
        assert untied == [], f"{name}: say `{COLUMN} =` of each of these"


def test_every_query_is_looked_at() -> None:
    batched = {"append_guard", "run_insert", "run_inserted", "batch_check", *PARTS}
    looked = {name.partition(" ")[0] for name in STATEMENTS} | batched
    rest = set(queries("postgres")) - looked
    assert rest == {"now_once", "now_each", "rows_of_many", "rows_of_one", *rest & set(SESSION)}


def test_the_tenant_leads_every_key_and_index() -> None:
    for table, keys in _created().items():
        if table in TENANTS_TABLES:
            assert all(key[0] == COLUMN for key in keys), f"{table}: {keys}"
            assert keys, f"{table} has no key"
    assert {"run", "step", "event", "message", "blob", "pending_action"} <= TENANTS_TABLES


def test_nothing_is_shared_by_tenants() -> None:
    for name, text in MIGRATIONS.items():
        for node in _nodes(parse_sql(text)):
            assert not isinstance(node, ast.CreateSeqStmt | ast.CreateTrigStmt), name
            if isinstance(node, ast.Constraint):
                assert node.contype not in (ConstrType.CONSTR_FOREIGN, ConstrType.CONSTR_IDENTITY), name
            if isinstance(node, ast.TypeName):
                assert not any("serial" in word for word in _names(node.names)), name


def test_nothing_relies_on_a_session_or_on_one_server() -> None:
    for name, sql in STATEMENTS.items():
        if name in SESSION:
            continue
        for node in _nodes(parse_sql(sql)):
            assert not isinstance(node, ast.VariableSetStmt | ast.ListenStmt | ast.PrepareStmt), name
            if isinstance(node, ast.FuncCall):
                assert not _names(node.funcname)[-1].startswith(OF_ONE_SERVER), name
            if isinstance(node, ast.RangeVar):
                assert node.relpersistence == "p", f"{name}: a temporary table"
        if name not in OPENING:
            assert not _tables(sql) & set(SYSTEM), f"{name} asks the server about itself"
