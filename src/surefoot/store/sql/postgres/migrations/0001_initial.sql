-- The first schema: the tables and columns of the SQLite store, with tenant_id in front of every key, so that it can be the
-- column by which data are distributed. No sequence, no serial, no foreign key: nothing that two tenants would share.
-- All times are seconds since 1970 UTC by the server's clock. Statuses are words, small structures are JSON as text.
-- Ids are compared byte by byte (COLLATE "C"), whatever the database's language is.
-- Rows that are written again leave room in their page (fillfactor), so that their new version stays beside the old one.

-- Of the whole database: its identity, and when it was last written to by `check_writable`.
CREATE TABLE meta (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    value text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL
);

-- One row for each process that takes leases of a tenant's runs. A free lock (file lock_name on that host) proves its
-- death; an ended session only lets others take over.
CREATE TABLE worker (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    host text NOT NULL,
    boot_id text NOT NULL,
    pid bigint NOT NULL,
    lock_name text NOT NULL,
    -- The server process of the connection that the worker listens on, and when that began; NULL behind a pooler.
    session_pid bigint,
    session_started double precision,
    started_at double precision NOT NULL,
    dead_at double precision,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE conversation (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- The next free position; while a run is under way, the run's own next_position counts.
    next_position bigint NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE message (
    -- The order of waiting messages in their conversation; 0 for one that was written at its place.
    arrival bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C",
    step_id text COLLATE "C",
    call_id text COLLATE "C",
    -- NULL while the message waits for a legal place.
    position bigint,
    role text NOT NULL,
    body text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, conversation_id, position)
);

-- One result for one call.
CREATE UNIQUE INDEX message_one_result ON message (tenant_id, call_id) WHERE role = 'tool_result';
CREATE INDEX message_queued ON message (tenant_id, conversation_id, arrival) WHERE position IS NULL;

CREATE TABLE run (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    agent text NOT NULL,
    agent_version text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    -- The one guard: +1 with every append.
    version bigint NOT NULL,
    event_sequence bigint NOT NULL,
    step_count bigint NOT NULL,
    next_position bigint NOT NULL,
    turns bigint NOT NULL,
    -- The largest n such that all steps up to n have ended or are given up.
    last_committed_sequence bigint NOT NULL,
    started_mono double precision NOT NULL,
    started_wall double precision NOT NULL,
    limits text NOT NULL,
    queued text NOT NULL,
    error_code text,
    -- When a worker has something to do next: by a wait, or by a question that expires.
    ready_at double precision,
    wake_at double precision,
    -- Why no worker can take it.
    blocked_code text,
    lease_owner text COLLATE "C",
    -- +1 with every acquisition.
    lease_token bigint NOT NULL,
    lease_until double precision NOT NULL,
    start_key text COLLATE "C",
    start_hash text NOT NULL,
    created_by text NOT NULL,
    metadata text NOT NULL,
    result text,
    -- The unread signals of the run, and the marks of keys that came with signals.
    signals text NOT NULL DEFAULT '{}',
    -- The step that waits for this run, and that step's run.
    parent_step_id text COLLATE "C",
    parent_run_id text COLLATE "C",
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cost_microdollars bigint NOT NULL DEFAULT 0,
    result_step_id text COLLATE "C",
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 60);

-- A conversation has at most one run that is not terminal.
CREATE UNIQUE INDEX run_under_way ON run (tenant_id, conversation_id)
    WHERE status NOT IN ('completed', 'failed', 'cancelled');
CREATE UNIQUE INDEX run_start_key ON run (tenant_id, start_key) WHERE start_key IS NOT NULL;
-- What claim and next_wake read: runs that only a person can move are in neither.
CREATE INDEX run_ready ON run (tenant_id, ready_at) WHERE ready_at IS NOT NULL AND blocked_code IS NULL;
CREATE INDEX run_wake ON run (tenant_id, wake_at) WHERE wake_at IS NOT NULL AND blocked_code IS NULL;
CREATE INDEX run_blocked ON run (tenant_id, blocked_code) WHERE blocked_code IS NOT NULL;
CREATE INDEX run_leased ON run (tenant_id, lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX run_children ON run (tenant_id, parent_run_id) WHERE parent_run_id IS NOT NULL;
-- Runs that have ended, by status: what metrics count. Written once for each run.
CREATE INDEX run_over ON run (tenant_id, status) WHERE status IN ('completed', 'failed', 'cancelled');

CREATE TABLE step (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    type text NOT NULL,
    status text NOT NULL,
    rules text NOT NULL,
    tool_name text,
    tool_version text,
    call_id text COLLATE "C",
    position bigint,
    operation_key text COLLATE "C" NOT NULL,
    input_hash text NOT NULL,
    input_ref text COLLATE "C",
    identity_hash text COLLATE "C",
    target text,
    credential text,
    account text,
    owner_step_id text COLLATE "C",
    action_id text COLLATE "C",
    external_resource_id text,
    resource_url text,
    resolution text,
    error_code text,
    purpose text,
    attempt bigint NOT NULL,
    not_before double precision NOT NULL,
    doubt_since double precision,
    look_at double precision,
    looks bigint NOT NULL,
    sweep bigint,
    person_absent bigint NOT NULL,
    answered bigint NOT NULL,
    receipts text NOT NULL,
    safe_input text,
    safe_output text,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, run_id, sequence)
) WITH (fillfactor = 80);

-- Loading a run reads its live steps only, however long it is.
CREATE INDEX step_live ON step (tenant_id, run_id, sequence)
    WHERE status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL;
CREATE INDEX step_same_action ON step (tenant_id, conversation_id, identity_hash, id) WHERE identity_hash IS NOT NULL;

CREATE TABLE attempt (
    tenant_id text COLLATE "C" NOT NULL,
    step_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    token bigint NOT NULL,
    account text,
    key_id text,
    started_at double precision NOT NULL,
    started_wall double precision NOT NULL,
    first_byte_before double precision NOT NULL,
    last_byte_before double precision NOT NULL,
    ended_at double precision,
    -- not_sent, refused, applied or in_doubt.
    ended_as text,
    code text,
    absent bigint NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, step_id, number)
) WITH (fillfactor = 80);

CREATE TABLE evidence (
    -- The order of writing in the run; of what several runs wrote at once it may be the same.
    arrival bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    step_id text COLLATE "C" NOT NULL,
    attempt bigint,
    verdict text NOT NULL,
    source text NOT NULL,
    reason text,
    resource_id text,
    resource_url text,
    detail text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision GENERATED ALWAYS AS (created_at) STORED
);

CREATE INDEX evidence_run ON evidence (tenant_id, run_id, arrival);
CREATE INDEX evidence_arrival ON evidence (tenant_id, arrival);

CREATE TABLE pending_action (
    -- The order of writing; of what several runs wrote at once it may be the same, then the id decides.
    arrival bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    step_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    input_hash text NOT NULL,
    status text NOT NULL,
    why text,
    permission text,
    expires_at double precision,
    decision text,
    decided_by text,
    decided_at double precision,
    decided_from text,
    decision_key text,
    arguments text NOT NULL,
    preview text NOT NULL,
    reason text,
    answer text,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE INDEX pending_action_run ON pending_action (tenant_id, run_id, status);
CREATE INDEX pending_action_arrival ON pending_action (tenant_id, arrival, id);
CREATE INDEX pending_action_waiting ON pending_action (tenant_id, arrival, id) WHERE status = 'waiting';

-- Where a foreign loop can go on: a row exists once such a loop has stored its state.
CREATE TABLE checkpoint (
    tenant_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    conversation_ref text NOT NULL,
    last_committed_sequence bigint NOT NULL,
    runtime_state_ref text,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, run_id)
);

-- Append-only. at_mono is the store's clock as the decision knew it, created_at the wall clock.
CREATE TABLE event (
    tenant_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    version bigint NOT NULL,
    type text NOT NULL,
    step_id text COLLATE "C",
    at_mono double precision NOT NULL,
    format bigint NOT NULL,
    data text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision GENERATED ALWAYS AS (created_at) STORED,
    PRIMARY KEY (tenant_id, run_id, sequence)
);

CREATE TABLE blob (
    tenant_id text COLLATE "C" NOT NULL,
    -- sha256 of the bytes in hex.
    ref text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    -- The encryption key, where the bytes are encrypted.
    key_id text,
    retention text NOT NULL,
    -- The one run that wrote it; NULL where several did.
    run_id text COLLATE "C",
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, ref)
);

-- Blobs that live until a batch is answered are found by their run; there is at most one a run.
CREATE INDEX blob_transient ON blob (tenant_id, run_id) WHERE retention = 'transient';

-- Business keys and the step that holds each.
CREATE TABLE operation_key (
    tenant_id text COLLATE "C" NOT NULL,
    operation_key text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    step_id text COLLATE "C" NOT NULL,
    input_hash text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, operation_key)
);

-- Up to which wall time the due times of a schedule were dealt with. What keeps a due time to one run is the start key.
CREATE TABLE schedule (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    seen_until double precision NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- API tokens, and the sessions of people who logged in with one. Only a SHA-256 of the secret is kept.
CREATE TABLE credential (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- token or session.
    kind text NOT NULL,
    name text NOT NULL,
    secret_hash text NOT NULL,
    -- JSON: a list of words. Empty for a session, which may what its token may.
    permissions text NOT NULL,
    -- A session's token.
    parent_id text COLLATE "C",
    expires_at double precision,
    revoked_at double precision,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

-- How far the announcing of a question to one hook has come.
CREATE TABLE announcement (
    tenant_id text COLLATE "C" NOT NULL,
    action_id text COLLATE "C" NOT NULL,
    hook text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL,
    -- NULL: no more, it was taken or given up.
    next_at double precision,
    outcome text,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, action_id, hook)
);

-- Small facts of the edges by name: deliveries that were seen, the trace that a run was driven under last.
CREATE TABLE mark (
    tenant_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, kind, name)
);
