-- Sweeps: the frozen plan, the state of every point, every attempt, what other processes ask of the one writer.
-- Times for people are ISO 8601 UTC text; `not_before_s` and `since_s` are seconds since 1970, UTC.

CREATE TABLE sweep (
    sweep_id    TEXT NOT NULL PRIMARY KEY,
    created_utc TEXT NOT NULL,
    ended_utc   TEXT,
    state       TEXT NOT NULL CHECK (state IN ('running', 'paused', 'done', 'failed', 'cancelled')),
    priority    INTEGER NOT NULL,
    options     TEXT NOT NULL,
    inputs      TEXT NOT NULL,
    forgiven    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE sweep_point (
    sweep_id     TEXT NOT NULL REFERENCES sweep (sweep_id),
    number       INTEGER NOT NULL CHECK (number >= 1),
    unit         INTEGER NOT NULL CHECK (unit >= 1),
    point_id     TEXT NOT NULL,
    series_id    TEXT NOT NULL,
    selector     TEXT NOT NULL,
    suite        TEXT NOT NULL,
    arm          TEXT NOT NULL,
    topology     TEXT NOT NULL,
    concurrency  INTEGER NOT NULL CHECK (concurrency >= 1),
    cluster      TEXT NOT NULL,
    gpus         INTEGER NOT NULL,
    canary       INTEGER NOT NULL CHECK (canary IN (0, 1)),
    recipe       TEXT,
    fingerprint  TEXT,
    state        TEXT NOT NULL
                 CHECK (state IN ('waiting', 'running', 'done', 'failed', 'skipped', 'cancelled')),
    tries        INTEGER NOT NULL DEFAULT 0,
    budget       INTEGER NOT NULL,
    not_before_s REAL NOT NULL DEFAULT 0,
    attempt      INTEGER,
    run_id       TEXT,
    failure      TEXT,
    PRIMARY KEY (sweep_id, number),
    UNIQUE (sweep_id, point_id)
) STRICT;

CREATE TABLE sweep_attempt (
    sweep_id    TEXT NOT NULL REFERENCES sweep (sweep_id),
    attempt     INTEGER NOT NULL CHECK (attempt >= 1),
    unit        INTEGER NOT NULL,
    line_id     TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'stopped', 'lost', 'void')),
    started_utc TEXT NOT NULL,
    ended_utc   TEXT,
    seconds     REAL,
    exit        TEXT,
    jobs        TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (sweep_id, attempt)
) STRICT;

CREATE TABLE sweep_attempt_point (
    sweep_id TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    run_id   TEXT,
    failure  TEXT,
    PRIMARY KEY (sweep_id, attempt, number),
    FOREIGN KEY (sweep_id, attempt) REFERENCES sweep_attempt (sweep_id, attempt),
    FOREIGN KEY (sweep_id, number) REFERENCES sweep_point (sweep_id, number)
) STRICT;

CREATE TABLE sweep_request (
    id           INTEGER PRIMARY KEY,
    sweep_id     TEXT NOT NULL REFERENCES sweep (sweep_id),
    kind         TEXT NOT NULL CHECK (kind IN ('pause', 'resume', 'cancel', 'retry')),
    number       INTEGER,
    asked_utc    TEXT NOT NULL,
    answered_utc TEXT
) STRICT;

CREATE INDEX sweep_request_open ON sweep_request (sweep_id) WHERE answered_utc IS NULL;

CREATE TABLE sweep_queue (
    cluster  TEXT NOT NULL,
    sweep_id TEXT NOT NULL REFERENCES sweep (sweep_id),
    priority INTEGER NOT NULL,
    since_s  REAL NOT NULL,
    PRIMARY KEY (cluster, sweep_id)
) STRICT;
