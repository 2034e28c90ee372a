-- A step whose operation key is its default (run_id, a colon and id) does not repeat it: NULL stands for it.

ALTER TABLE step ALTER COLUMN operation_key DROP NOT NULL;

-- No room is left in their pages for the new version of a row: a page is cleared of old versions once it is full, and of
-- one that was left a fifth free they stayed until the next vacuum, with as much room as the rows themselves.
ALTER TABLE step RESET (fillfactor);
ALTER TABLE attempt RESET (fillfactor);
