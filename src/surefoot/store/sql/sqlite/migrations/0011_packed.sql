-- Large texts are packed: the columns that may hold one take a TEXT (plain) or a BLOB (packed), each as it is. A step whose
-- operation key is its default, run and step, does not repeat it. What older versions wrote stays as it stands.

CREATE TABLE message_packed (
    arrival INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    run_id TEXT,
    step_id TEXT,
    call_id TEXT,
    -- NULL while the message waits for a legal place.
    position INTEGER,
    role TEXT NOT NULL,
    body ANY NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, conversation_id, position)
) STRICT;
INSERT INTO message_packed SELECT
    arrival, tenant_id, id, conversation_id, run_id, step_id, call_id, position, role, body, created_at, updated_at
FROM message;
DROP TABLE message;
ALTER TABLE message_packed RENAME TO message;
CREATE UNIQUE INDEX message_one_result ON message (tenant_id, call_id) WHERE role = 'tool_result';
CREATE UNIQUE INDEX message_said ON message (tenant_id, id) WHERE step_id IS NULL;

CREATE TABLE step_packed (
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
    attempt INTEGER NOT NULL,
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
    UNIQUE (tenant_id, id),
    UNIQUE (tenant_id, run_id, sequence)
) STRICT;
INSERT INTO step_packed SELECT
    tenant_id, id, run_id, conversation_id, sequence, type, status, rules, tool_name, tool_version, call_id, position,
    operation_key, input_hash, input_ref, identity_hash, target, credential, account, owner_step_id, action_id,
    external_resource_id, resource_url, resolution, error_code, attempt, not_before, doubt_since, look_at, looks, sweep,
    person_absent, answered, receipts, safe_input, safe_output, created_at, updated_at, purpose
FROM step;
DROP TABLE step;
ALTER TABLE step_packed RENAME TO step;
CREATE INDEX step_live ON step (tenant_id, run_id, sequence)
    WHERE status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL;
CREATE INDEX step_same_action ON step (tenant_id, conversation_id, identity_hash, id) WHERE identity_hash IS NOT NULL;
