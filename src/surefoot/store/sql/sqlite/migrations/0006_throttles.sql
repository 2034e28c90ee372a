-- What bounds calls over all workers of a tenant, and in which order runs are claimed.

-- The next token of a throttle that nobody has (seconds since the boot that meta.boot_id names).
CREATE TABLE throttle (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    next_at REAL NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, name)
) STRICT;

-- How many calls at once a worker may have under way until when.
CREATE TABLE throttle_share (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    slots INTEGER NOT NULL,
    held_until REAL NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, name, worker_id)
) STRICT;

-- Each step up is worth a minute of waiting.
ALTER TABLE run ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
CREATE INDEX run_ready_other ON run (tenant_id, ready_at)
    WHERE priority <> 0 AND ready_at IS NOT NULL AND blocked_code IS NULL;
