-- Rows as they were read, and the identities that queries go by. Times are ISO 8601 UTC text, which sorts by time.
-- No key has a nullable column: identities are hashes of canonical JSON, made in catalog/.

CREATE TABLE source_file (
    sha256      TEXT NOT NULL PRIMARY KEY CHECK (length(sha256) = 64),
    path        TEXT NOT NULL,
    bytes       INTEGER NOT NULL CHECK (bytes >= 0),
    added_utc   TEXT NOT NULL
) STRICT;

CREATE TABLE line (
    line_id     TEXT NOT NULL PRIMARY KEY,
    suite       TEXT NOT NULL,
    arm         TEXT NOT NULL
) STRICT;

CREATE TABLE point (
    point_id    TEXT NOT NULL PRIMARY KEY,
    series_id   TEXT NOT NULL,
    concurrency INTEGER NOT NULL CHECK (concurrency >= 1),
    identity    TEXT NOT NULL
) STRICT;

CREATE TABLE raw_row (
    id              INTEGER PRIMARY KEY,
    source_sha256   TEXT NOT NULL REFERENCES source_file (sha256),
    ordinal         INTEGER NOT NULL,
    row_sha256      TEXT NOT NULL CHECK (length(row_sha256) = 64),
    mapping_version INTEGER NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('mapped', 'unmapped', 'invalid', 'superseded')),
    reason          TEXT NOT NULL DEFAULT '',
    json            TEXT NOT NULL,
    UNIQUE (source_sha256, ordinal)
) STRICT;

CREATE INDEX raw_row_by_hash ON raw_row (row_sha256);

CREATE TABLE run (
    run_id       TEXT NOT NULL PRIMARY KEY,
    line_id      TEXT NOT NULL REFERENCES line (line_id),
    point_id     TEXT NOT NULL REFERENCES point (point_id),
    raw_row_id   INTEGER NOT NULL UNIQUE REFERENCES raw_row (id),
    status       TEXT NOT NULL CHECK (status IN ('complete', 'partial')),
    started_utc  TEXT NOT NULL,
    finished_utc TEXT NOT NULL
) STRICT;

CREATE INDEX run_by_line ON run (line_id, started_utc);
CREATE INDEX run_by_point ON run (point_id, started_utc);
CREATE INDEX point_by_series ON point (series_id);
CREATE INDEX line_by_arm ON line (suite, arm);
