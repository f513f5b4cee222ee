-- What was foretold of a point before it ran, beside what it then measured; written with the point, out of what its
-- manifest expected. `value` and its interval are empty where nothing could be said (`reason` says why), `measured` where
-- the point has no such figure.

CREATE TABLE prediction (
    point_id  INTEGER NOT NULL REFERENCES result_point (id) ON DELETE CASCADE,
    metric    TEXT NOT NULL,
    class     TEXT NOT NULL CHECK (
        class IN ('interpolated', 'extrapolated_concurrency', 'other_shape', 'one_anchor', 'none')
    ),
    value     REAL,
    low       REAL,
    high      REAL,
    level     REAL NOT NULL CHECK (level > 0 AND level < 1),
    residuals INTEGER NOT NULL CHECK (residuals >= 0),
    reason    TEXT,
    made_utc  TEXT NOT NULL,
    fit       TEXT NOT NULL,
    measured  REAL,
    PRIMARY KEY (point_id, metric)
) STRICT, WITHOUT ROWID;

CREATE INDEX prediction_by_class ON prediction (class, metric);
