-- What the service needs: from where a decision came, who may call the API, what was announced, what came in before.
-- Times are wall seconds since 1970 UTC.

ALTER TABLE pending_action ADD COLUMN decided_from TEXT;

-- API tokens, and the sessions of people who logged in with one. Only a SHA-256 of the secret is kept.
CREATE TABLE credential (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    -- token or session.
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    secret_hash TEXT NOT NULL,
    -- JSON: a list of words. Empty for a session, which may what its token may.
    permissions TEXT NOT NULL,
    -- A session's token.
    parent_id TEXT,
    expires_at REAL,
    revoked_at REAL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, id)
) STRICT;

-- How far the announcing of a question to one hook has come.
CREATE TABLE announcement (
    tenant_id TEXT NOT NULL,
    action_id TEXT NOT NULL,
    hook TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    -- NULL: no more, it was taken or given up.
    next_at REAL,
    outcome TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, action_id, hook)
) STRICT;

-- Small facts of the edges by name: deliveries that were seen, the trace that a run was driven under last.
CREATE TABLE mark (
    tenant_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, kind, name)
) STRICT;

-- Runs that have ended, by status: what metrics count. Written once for each run.
CREATE INDEX run_over ON run (tenant_id, status) WHERE status IN ('completed', 'failed', 'cancelled');
