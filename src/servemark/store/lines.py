"""Which attempt of a point counts, and which run of a configuration is the latest.

A point that was tried several times in one run is there once for each try; the later complete try counts and the others
are `superseded`. The latest line of a configuration is its newest run with at least one complete point that is not
quarantined: a failed night does not hide the last good one. Its missing points are never filled in from older runs.
"""

from __future__ import annotations

import sqlite3

from servemark.base.canonical import canonical_json


def settle(db: sqlite3.Connection) -> None:
    """Bring lines that the temporary table `touched` names up to date, within the caller's transaction."""
    _settle_attempts(db)
    db.execute(
        """
        UPDATE result_line SET (points, usable, date) = (
            SELECT count(*), coalesce(sum(status = 'complete' AND verdict <> 'quarantined'), 0), coalesce(max(at_utc), '')
            FROM result_point WHERE line_id = result_line.id AND current = 1
        ) WHERE id IN (SELECT line_id FROM touched)
        """
    )
    db.execute("CREATE TEMP TABLE IF NOT EXISTS touched_config (config_id INTEGER, source TEXT)")
    db.execute("DELETE FROM touched_config")
    db.execute(
        """
        INSERT INTO touched_config SELECT DISTINCT config_id, source FROM result_line
        WHERE id IN (SELECT line_id FROM touched)
        """
    )
    db.execute("DELETE FROM result_line WHERE points = 0 AND id IN (SELECT line_id FROM touched)")
    db.execute(
        """
        UPDATE result_line SET latest = 0 WHERE latest = 1 AND id IN (
            SELECT l.id FROM touched_config t JOIN result_line l
            ON l.config_id = t.config_id AND l.source = t.source AND l.latest = 1)
        """
    )
    db.execute(
        """
        UPDATE result_line SET latest = 1 WHERE id IN (SELECT (
            SELECT w.id FROM result_line w WHERE w.config_id = t.config_id AND w.source = t.source AND w.usable > 0
            ORDER BY w.date DESC, w.run DESC LIMIT 1) FROM touched_config t)
        """
    )
    db.execute(
        """
        DELETE FROM result_config WHERE id IN (SELECT config_id FROM touched_config)
        AND NOT EXISTS (SELECT 1 FROM result_line l WHERE l.config_id = result_config.id)
        """
    )


def _settle_attempts(db: sqlite3.Connection) -> None:
    """`current` and the rows' status of every point of the touched lines that is there more than once, or that lost the
    tries beside it."""
    alone = """
        SELECT p.line_id, p.point_key FROM touched t JOIN result_point p ON p.line_id = t.line_id
        GROUP BY p.line_id, p.point_key HAVING count(*) > 1 OR min(p.current) = 0
    """
    for line_id, point_key in db.execute(alone).fetchall():
        tries = db.execute(
            """
            SELECT p.id, p.attempt, p.content, r.source_id FROM result_point p JOIN import_row r ON r.id = p.id
            WHERE p.line_id = ? AND p.point_key = ?
            ORDER BY p.status = 'complete' DESC, p.attempt DESC, p.at_utc DESC, p.content DESC, p.id
            """,
            (line_id, point_key),
        ).fetchall()
        winner, attempt, content, file = tries[0]
        db.execute("UPDATE result_point SET current = 1 WHERE id = ?", (winner,))
        db.execute(
            "UPDATE import_row SET status = 'mapped', reason = '', reason_values = '{}' WHERE id = ?",
            (winner,),
        )
        for number, _, other, other_file in tries[1:]:
            same = other == content
            again = "store.row.same_file" if other_file == file else "store.row.same"
            db.execute("UPDATE result_point SET current = 0 WHERE id = ?", (number,))
            db.execute(
                "UPDATE import_row SET status = 'superseded', reason = ?, reason_values = ? WHERE id = ?",
                (
                    again if same else "store.row.later_attempt",
                    "{}" if same else canonical_json({"attempt": attempt}),
                    number,
                ),
            )
