-- An open loop asks for no concurrency: the column may be empty now. SQLite cannot loosen a column in place.

ALTER TABLE point ADD COLUMN asked INTEGER CHECK (asked IS NULL OR asked >= 1);
UPDATE point SET asked = concurrency;
ALTER TABLE point DROP COLUMN concurrency;
ALTER TABLE point RENAME COLUMN asked TO concurrency;
