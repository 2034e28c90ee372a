-- Waiting for what is neither a call nor a person: signals, child runs, and the times of schedules.

-- The unread signals of the run, and the marks of keys that came with signals.
ALTER TABLE run ADD COLUMN signals TEXT NOT NULL DEFAULT '{}';

-- The step that waits for this run, and that step's run.
ALTER TABLE run ADD COLUMN parent_step_id TEXT;
ALTER TABLE run ADD COLUMN parent_run_id TEXT;
CREATE INDEX run_children ON run (tenant_id, parent_run_id) WHERE parent_run_id IS NOT NULL;

-- Up to which wall time the due times of a schedule were dealt with. What keeps a due time to one run is the start key.
CREATE TABLE schedule (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    seen_until REAL NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, name)
) STRICT;
