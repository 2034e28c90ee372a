-- Two indexes less for each commit to enter. A step's id is made of its run and its sequence, so one key is enough for both
-- ways to it. A step that goes its ordinary way is found behind what its run has committed, and only those that are in doubt
-- or looked up again, also long after, need an index of their own.

CREATE TABLE step_by_run (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    rules TEXT NOT NULL,
    tool_name TEXT,
    tool_version TEXT,
    call_id TEXT,
    position INTEGER,
    -- NULL: run_id, a colon and id.
    operation_key TEXT,
    input_hash TEXT NOT NULL,
    input_ref TEXT,
    identity_hash TEXT,
    target TEXT,
    credential TEXT,
    account TEXT,
    owner_step_id TEXT,
    action_id TEXT,
    external_resource_id TEXT,
    resource_url TEXT,
    resolution TEXT,
    error_code TEXT,
    -- How many so far; each of them, as a JSON list.
    attempt INTEGER NOT NULL,
    attempts TEXT NOT NULL,
    not_before REAL NOT NULL,
    doubt_since REAL,
    look_at REAL,
    looks INTEGER NOT NULL,
    sweep INTEGER,
    person_absent INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    receipts TEXT NOT NULL,
    safe_input ANY,
    safe_output ANY,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    -- What a model call was for, where it was not the next turn.
    purpose TEXT,
    UNIQUE (tenant_id, run_id, sequence)
) STRICT;
INSERT INTO step_by_run SELECT
    tenant_id, id, run_id, conversation_id, sequence, type, status, rules, tool_name, tool_version, call_id, position,
    operation_key, input_hash, input_ref, identity_hash, target, credential, account, owner_step_id, action_id,
    external_resource_id, resource_url, resolution, error_code, attempt, attempts, not_before, doubt_since, look_at, looks,
    sweep, person_absent, answered, receipts, safe_input, safe_output, created_at, updated_at, purpose
FROM step;
DROP TABLE step;
ALTER TABLE step_by_run RENAME TO step;
CREATE INDEX step_late ON step (tenant_id, run_id, sequence) WHERE doubt_since IS NOT NULL OR look_at IS NOT NULL;
CREATE INDEX step_same_action ON step (tenant_id, conversation_id, identity_hash, id) WHERE identity_hash IS NOT NULL;
