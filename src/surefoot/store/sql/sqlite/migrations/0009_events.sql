-- The events of one append are one row: a quarter of the rows, and of the entries of the index. `sequence` is that of the
-- last of them, `events` says how many there are, and `data` is a list of them where `type` is 'events'.

ALTER TABLE event ADD COLUMN events INTEGER NOT NULL DEFAULT 1;
