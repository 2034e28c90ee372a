-- What a worker takes, as JSON: its tenant, and agents by their versions; NULL for a process that claims nothing.

ALTER TABLE worker ADD COLUMN takes TEXT;
