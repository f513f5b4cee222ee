"""Numbered migrations: each whole or not at all, in order, by one of two, and never over another's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.store.database import Store
from servemark.store.migrate import Migration, check, migrate, newest, shipped, statements


def step(number: int, sql: str, sha256: str = "") -> Migration:
    """A migration made up for a test."""
    return Migration(number, f"{number:04d}_made_up.sql", sql, sha256 or f"hash of {number}")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection as the store makes one."""
    connection = sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)
    yield connection
    connection.close()


def test_shipped_migrations_are_numbered_without_a_gap() -> None:
    """1, 2, 3 ...: a gap would stop a store half-way."""
    assert [each.number for each in shipped()] == list(range(1, newest() + 1))


def test_no_key_has_a_nullable_column(tmp_path: Path) -> None:
    """Read from the file that the migrations make: every column of every key and unique index is NOT NULL,
    and all tables are STRICT."""
    with Store.open(tmp_path / "s.sqlite"):
        pass
    db = sqlite3.connect(tmp_path / "s.sqlite")
    tables = db.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    checked = 0
    for table, strict in tables.fetchall():
        if table.startswith("sqlite_"):
            continue
        assert strict, table
        columns = {row[1]: row for row in db.execute(f"PRAGMA table_info({table})")}
        keys = {name for name, row in columns.items() if row[5]}
        for _, index, unique, *_ in db.execute(f"PRAGMA index_list({table})").fetchall():
            if unique:
                keys |= {row[2] for row in db.execute(f"PRAGMA index_info({index})")}
        for name in keys:
            whole_row_id = columns[name][2] == "INTEGER" and columns[name][5]
            assert columns[name][3] or whole_row_id, f"{table}.{name} may be null"
            checked += 1
    db.close()
    assert checked >= 8


def test_steps_are_applied_in_order_and_once(db: sqlite3.Connection, tmp_path: Path) -> None:
    """Schema 2 from nothing, again with nothing to do, then a third step alone."""
    one, two = step(1, "CREATE TABLE a (x TEXT) STRICT;"), step(2, "ALTER TABLE a ADD COLUMN y TEXT;")
    assert migrate(db, tmp_path, (one, two)) == 2
    assert migrate(db, tmp_path, (one, two)) == 2
    three = step(3, "INSERT INTO a VALUES ('1', '2'); INSERT INTO a VALUES ('3', '4');")
    assert migrate(db, tmp_path, (one, two, three)) == 3
    assert db.execute("SELECT count(*) FROM a").fetchone() == (2,)
    assert [row[0] for row in db.execute("SELECT number FROM migration")] == [1, 2, 3]


def test_a_step_that_fails_leaves_nothing_behind(db: sqlite3.Connection, tmp_path: Path) -> None:
    """The first statement of the second step worked; after the failure of its second one it is undone."""
    one = step(1, "CREATE TABLE a (x TEXT) STRICT;")
    bad = step(2, "CREATE TABLE b (x TEXT) STRICT; INSERT INTO nowhere VALUES (1);")
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, tmp_path, (one, bad))
    assert check(db, tmp_path, (one, bad)) == 1
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'b'").fetchone() == (0,)


@pytest.mark.parametrize(
    ("steps", "key"),
    [
        ((step(1, ""),), "store.newer_schema"),
        ((step(1, "", "another hash"), step(2, "")), "store.migration_changed"),
    ],
)
def test_a_file_of_another_servemark_is_left_alone(
    db: sqlite3.Connection, tmp_path: Path, steps: tuple[Migration, ...], key: str
) -> None:
    """Newer than this one, or made by a changed copy."""
    migrate(db, tmp_path, (step(1, "CREATE TABLE a (x TEXT) STRICT;"), step(2, "")))
    with pytest.raises(ServemarkError) as caught:
        migrate(db, tmp_path, steps)
    assert caught.value.key == key
    assert caught.value.next_step("zh")


def test_another_program_s_database_is_left_alone(db: sqlite3.Connection, tmp_path: Path) -> None:
    """A database without our mark is not given our tables."""
    db.execute("CREATE TABLE notes (x TEXT)")
    with pytest.raises(ServemarkError) as caught:
        Store.open(tmp_path / "x.sqlite")
    assert caught.value.key == "store.foreign"
    assert [row[0] for row in db.execute("SELECT name FROM sqlite_master")] == ["notes"]


def test_an_older_file_is_not_migrated_by_a_reader(tmp_path: Path) -> None:
    """A file of schema 1 with a servemark of schema 1 opens; nothing else happens in read-only mode."""
    path = tmp_path / "empty.sqlite"
    path.touch()
    with pytest.raises(ServemarkError) as caught:
        Store.open(path, read_only=True)
    assert caught.value.key == "store.older_schema"
    assert path.stat().st_size == 0


def test_statements_split_only_where_sql_ends() -> None:
    """Semicolons in strings, comments and triggers belong to their statement."""
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN INSERT INTO b VALUES (1); DELETE FROM c; END;"
    sql = f"-- one; two\nINSERT INTO a VALUES ('x;y');\n/* ; */\n{trigger}\n-- the end;\n"
    found = statements(sql)
    assert len(found) == 2
    assert "'x;y'" in found[0]
    assert found[1].endswith(trigger)


def test_the_concurrency_may_be_empty_after_the_second_step(tmp_path: Path) -> None:
    """A store of schema 1 with a point and a run keeps both; afterwards a point of an open loop fits in."""
    db = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)
    db.execute("PRAGMA foreign_keys = ON")
    migrate(db, tmp_path / "s.sqlite", shipped()[:1])
    sha = "0" * 64
    db.execute("INSERT INTO source_file VALUES (?, 'x', 1, '2026-01-01T00:00:00Z')", (sha,))
    db.execute("INSERT INTO line VALUES ('l', 's', 'a')")
    db.execute("INSERT INTO point VALUES ('p', 'q', 8, '{}')")
    db.execute("INSERT INTO raw_row VALUES (1, ?, 0, ?, 1, 'mapped', '', '{}')", (sha, sha))
    db.execute("INSERT INTO run VALUES ('r', 'l', 'p', 1, 'complete', '2026', '2026')")
    migrate(db, tmp_path / "s.sqlite")
    db.execute("INSERT INTO point (point_id, series_id, identity) VALUES ('o', 'q', '{}')")
    found = db.execute("SELECT point_id, series_id, concurrency, identity FROM point ORDER BY point_id")
    assert found.fetchall() == [("o", "q", None, "{}"), ("p", "q", 8, "{}")]
    assert db.execute("SELECT point_id FROM run").fetchall() == [("p",)]
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO point VALUES ('z', 'q', '{}', 0)")
    db.close()


@pytest.mark.parametrize("version", range(1, newest()))
def test_a_store_of_every_earlier_version_comes_up_to_date(tmp_path: Path, version: int) -> None:
    """A store made by the first `version` migrations, with a run in it: after opening it has the present schema, the run
    as it was, and takes imports; a reader alone changes nothing."""
    path = tmp_path / "store.sqlite"
    old = sqlite3.connect(path, isolation_level=None)
    migrate(old, path, shipped()[:version])
    sha = "a" * 64
    old.execute("INSERT INTO source_file VALUES (?, 'result.json', 2, '2026-01-01T00:00:00Z')", (sha,))
    old.execute("INSERT INTO line VALUES ('l', 's', 'a')")
    old.execute("INSERT INTO point (point_id, series_id, concurrency, identity) VALUES ('p', 'q', 4, '{}')")
    old.execute("INSERT INTO raw_row VALUES (1, ?, 0, ?, 1, 'mapped', '', '{}')", (sha, sha))
    old.execute("INSERT INTO run VALUES ('r', 'l', 'p', 1, 'complete', '2026-01-01', '2026-01-01')")
    old.close()
    before = path.read_bytes()
    with pytest.raises(ServemarkError) as caught:
        Store.open(path, read_only=True)
    assert caught.value.key == "store.older_schema"
    assert path.read_bytes() == before
    with Store.open(path) as store:
        assert store.check() == []
        assert store.query("SELECT point_id, series_id, concurrency FROM point") == [("p", "q", 4)]
        assert [line.line_id for line in store.lines()] == ["l"]
        assert store.query("PRAGMA user_version") == [(newest(),)]
        assert store.query("SELECT count(*) FROM result_point") == [(0,)]
