-- What bounds calls over all workers of a tenant, and in which order runs are claimed.

-- The next token of a throttle that nobody has. `turn` grows with every share: who decided on an older one asks again.
CREATE TABLE throttle (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    next_at double precision NOT NULL,
    turn bigint NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- How many calls at once a worker may have under way until when.
CREATE TABLE throttle_share (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    slots bigint NOT NULL,
    held_until double precision NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, name, worker_id)
);

-- Each step up is worth a minute of waiting.
ALTER TABLE run ADD COLUMN priority bigint NOT NULL DEFAULT 0;
CREATE INDEX run_ready_other ON run (tenant_id, ready_at)
    WHERE priority <> 0 AND ready_at IS NOT NULL AND blocked_code IS NULL;
