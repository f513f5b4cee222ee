-- Results of any tool as points: files whose bytes are kept under raw/, what became of each of their rows, and points.
-- What many points share is kept once: a configuration's identity, and the names, definitions and places of their figures.
-- No key has a nullable column; concurrency is empty where load is an open loop (the arrivals are in the configuration).

CREATE TABLE import_source (
    id              INTEGER PRIMARY KEY,
    sha256          TEXT NOT NULL UNIQUE CHECK (length(sha256) = 64),
    name            TEXT NOT NULL,
    bytes           INTEGER NOT NULL CHECK (bytes >= 0),
    added_utc       TEXT NOT NULL,
    importer        TEXT NOT NULL,
    mapping_version INTEGER NOT NULL,
    hints           TEXT NOT NULL,
    gates           TEXT NOT NULL
) STRICT;

CREATE TABLE import_sibling (
    source_id INTEGER NOT NULL REFERENCES import_source (id) ON DELETE CASCADE,
    name      TEXT NOT NULL,
    sha256    TEXT NOT NULL CHECK (length(sha256) = 64),
    PRIMARY KEY (source_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE import_row (
    id            INTEGER PRIMARY KEY,
    source_id     INTEGER NOT NULL REFERENCES import_source (id) ON DELETE CASCADE,
    ordinal       INTEGER NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('mapped', 'unmapped', 'invalid', 'superseded')),
    reason        TEXT NOT NULL,
    reason_values TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX import_row_by_source ON import_row (source_id, ordinal);
CREATE INDEX import_row_not_mapped ON import_row (status, reason) WHERE status <> 'mapped';

CREATE TABLE result_config (
    id         INTEGER PRIMARY KEY,
    config_key TEXT NOT NULL UNIQUE,
    model      TEXT NOT NULL,
    hardware   TEXT NOT NULL,
    engine     TEXT NOT NULL,
    precision  TEXT NOT NULL,
    scenario   TEXT NOT NULL,
    identity   BLOB NOT NULL
) STRICT;

CREATE INDEX result_config_by_model ON result_config (model, scenario, precision, hardware);

CREATE TABLE result_line (
    id        INTEGER PRIMARY KEY,
    line_key  TEXT NOT NULL UNIQUE,
    config_id INTEGER NOT NULL REFERENCES result_config (id),
    source    TEXT NOT NULL,
    run       TEXT NOT NULL,
    date      TEXT NOT NULL,
    points    INTEGER NOT NULL,
    usable    INTEGER NOT NULL,
    latest    INTEGER NOT NULL CHECK (latest IN (0, 1))
) STRICT;

CREATE INDEX result_line_by_config ON result_line (config_id, source, date, run);
CREATE INDEX result_line_by_run ON result_line (source, run);
CREATE UNIQUE INDEX result_line_latest ON result_line (config_id, source) WHERE latest = 1;

CREATE TABLE figure_shape (
    id     INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    shape  BLOB NOT NULL
) STRICT;

CREATE TABLE result_point (
    id          INTEGER PRIMARY KEY REFERENCES import_row (id) ON DELETE CASCADE,
    point_key   TEXT NOT NULL,
    line_id     INTEGER NOT NULL REFERENCES result_line (id),
    concurrency INTEGER CHECK (concurrency IS NULL OR concurrency >= 1),
    attempt     INTEGER NOT NULL,
    at_utc      TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('complete', 'partial')),
    verdict     TEXT NOT NULL CHECK (verdict IN ('valid', 'warnings', 'quarantined')),
    current     INTEGER NOT NULL CHECK (current IN (0, 1)),
    content     BLOB NOT NULL,
    shape_id    INTEGER NOT NULL REFERENCES figure_shape (id),
    figures     BLOB NOT NULL,
    stated      BLOB NOT NULL,
    rest        BLOB NOT NULL
) STRICT;

CREATE INDEX result_point_by_line ON result_point (line_id, point_key);
CREATE INDEX result_point_by_key ON result_point (point_key);
CREATE INDEX result_point_doubted ON result_point (verdict) WHERE verdict <> 'valid';

CREATE TABLE gate_finding (
    point_id       INTEGER NOT NULL REFERENCES result_point (id) ON DELETE CASCADE,
    gate           TEXT NOT NULL,
    severity       TEXT NOT NULL CHECK (severity IN ('warning', 'quarantine')),
    finding_values TEXT NOT NULL,
    PRIMARY KEY (point_id, gate)
) STRICT, WITHOUT ROWID;
