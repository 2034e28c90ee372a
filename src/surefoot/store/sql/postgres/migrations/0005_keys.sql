-- A step whose operation key is its default (run_id, a colon and id) does not repeat it: NULL stands for it.

ALTER TABLE step ALTER COLUMN operation_key DROP NOT NULL;
