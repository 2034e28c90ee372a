-- The first schema. Times: *_at of a row's making and changing, and expires_at, are wall seconds since 1970 UTC; ready_at,
-- lease_until, not_before, doubt_since, look_at, started_at, first_byte_before, last_byte_before and ended_at are seconds
-- since the boot that meta.boot_id names. Statuses are words, small structures are JSON text.
-- Ordinary rowid tables: rows of many runs are appended to a few shared pages (measured twice as fast as WITHOUT ROWID).
-- No foreign keys: an append is whole or not at all, and `integrity()` looks for rows without their parents.

CREATE TABLE meta (
    key TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;

-- One row for each process that takes leases. A free lock (file lock_name in the directory of locks) proves its death.
CREATE TABLE worker (
    id TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    lock_name TEXT NOT NULL,
    started_at REAL NOT NULL,
    dead_at REAL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;

CREATE TABLE conversation (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The next free position; while a run is under way, the run's own next_position counts.
    next_position INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, id)
) STRICT;

-- arrival: the order of writing, which wall clocks cannot give.
CREATE TABLE message (
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
    body TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, id),
    UNIQUE (tenant_id, conversation_id, position)
) STRICT;

-- One result for one call.
CREATE UNIQUE INDEX message_one_result ON message (tenant_id, call_id) WHERE role = 'tool_result';

CREATE TABLE run (
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    agent_version TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    -- The one guard: +1 with every append.
    version INTEGER NOT NULL,
    event_sequence INTEGER NOT NULL,
    step_count INTEGER NOT NULL,
    next_position INTEGER NOT NULL,
    turns INTEGER NOT NULL,
    -- The largest n such that all steps up to n have ended or are given up.
    last_committed_sequence INTEGER NOT NULL,
    started_mono REAL NOT NULL,
    started_wall REAL NOT NULL,
    limits TEXT NOT NULL,
    queued TEXT NOT NULL,
    error_code TEXT,
    -- When a worker has something to do next: seconds since boot, and wall (questions that expire).
    ready_at REAL,
    wake_at REAL,
    -- Why no worker can take it.
    blocked_code TEXT,
    lease_owner TEXT,
    -- +1 with every acquisition.
    lease_token INTEGER NOT NULL,
    lease_until REAL NOT NULL,
    start_key TEXT,
    start_hash TEXT NOT NULL,
    created_by TEXT NOT NULL,
    metadata TEXT NOT NULL,
    result TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, id)
) STRICT;

-- A conversation has at most one run that is not terminal.
CREATE UNIQUE INDEX run_under_way ON run (tenant_id, conversation_id)
    WHERE status NOT IN ('completed', 'failed', 'cancelled');
CREATE UNIQUE INDEX run_start_key ON run (tenant_id, start_key) WHERE start_key IS NOT NULL;
-- What claim and next_wake read: runs that only a person can move are in neither.
CREATE INDEX run_ready ON run (tenant_id, ready_at) WHERE ready_at IS NOT NULL AND blocked_code IS NULL;
CREATE INDEX run_wake ON run (tenant_id, wake_at) WHERE wake_at IS NOT NULL AND blocked_code IS NULL;
CREATE INDEX run_blocked ON run (tenant_id, blocked_code) WHERE blocked_code IS NOT NULL;
-- Whose process may have died: a lookup across tenants, not a key.
CREATE INDEX run_leased ON run (lease_owner) WHERE lease_owner IS NOT NULL;

CREATE TABLE step (
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
    operation_key TEXT NOT NULL,
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
    safe_input TEXT,
    safe_output TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, id),
    UNIQUE (tenant_id, run_id, sequence)
) STRICT;

-- Loading a run reads its live steps only, however long it is.
CREATE INDEX step_live ON step (tenant_id, run_id, sequence)
    WHERE status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL;
CREATE INDEX step_same_action ON step (tenant_id, conversation_id, identity_hash, id) WHERE identity_hash IS NOT NULL;

CREATE TABLE attempt (
    tenant_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    token INTEGER NOT NULL,
    account TEXT,
    key_id TEXT,
    started_at REAL NOT NULL,
    started_wall REAL NOT NULL,
    first_byte_before REAL NOT NULL,
    last_byte_before REAL NOT NULL,
    ended_at REAL,
    -- not_sent, refused, applied or in_doubt.
    ended_as TEXT,
    code TEXT,
    absent INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, step_id, number)
) STRICT;

CREATE TABLE evidence (
    arrival INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    attempt INTEGER,
    verdict TEXT NOT NULL,
    source TEXT NOT NULL,
    reason TEXT,
    resource_id TEXT,
    resource_url TEXT,
    detail TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL GENERATED ALWAYS AS (created_at) VIRTUAL
) STRICT;

CREATE INDEX evidence_run ON evidence (tenant_id, run_id);

CREATE TABLE pending_action (
    arrival INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    input_hash TEXT NOT NULL,
    status TEXT NOT NULL,
    why TEXT,
    permission TEXT,
    expires_at REAL,
    decision TEXT,
    decided_by TEXT,
    decided_at REAL,
    decision_key TEXT,
    arguments TEXT NOT NULL,
    preview TEXT NOT NULL,
    reason TEXT,
    answer TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, id)
) STRICT;

CREATE INDEX pending_action_run ON pending_action (tenant_id, run_id, status);
CREATE INDEX pending_action_waiting ON pending_action (tenant_id, arrival) WHERE status = 'waiting';

-- Where a foreign loop can go on: a row exists once such a loop has stored its state. run.last_committed_sequence is the
-- same number for every run.
CREATE TABLE checkpoint (
    tenant_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    conversation_ref TEXT NOT NULL,
    last_committed_sequence INTEGER NOT NULL,
    runtime_state_ref TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, run_id)
) STRICT;

-- Append-only. at_mono is the boot clock at the commit, created_at the wall clock.
CREATE TABLE event (
    tenant_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    version INTEGER NOT NULL,
    type TEXT NOT NULL,
    step_id TEXT,
    at_mono REAL NOT NULL,
    format INTEGER NOT NULL,
    data TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL GENERATED ALWAYS AS (created_at) VIRTUAL,
    UNIQUE (tenant_id, run_id, sequence)
) STRICT;

CREATE TABLE blob (
    tenant_id TEXT NOT NULL,
    -- sha256 of the bytes in hex.
    ref TEXT NOT NULL,
    data BLOB NOT NULL,
    -- The encryption key, where the bytes are encrypted.
    key_id TEXT,
    retention TEXT NOT NULL,
    -- The one run that wrote it; NULL where several did.
    run_id TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, ref)
) STRICT;

-- Business keys and the step that holds each.
CREATE TABLE operation_key (
    tenant_id TEXT NOT NULL,
    operation_key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    input_hash TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (tenant_id, operation_key)
) STRICT;
