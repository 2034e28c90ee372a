-- Fewer pages for each commit. An attempt is found by its key alone, so the key is its table. Only what people and notes say
-- is told from others by its id: the answer of a model and the result of a call have their places.

CREATE TABLE attempt_by_key (
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
    PRIMARY KEY (tenant_id, step_id, number)
) STRICT, WITHOUT ROWID;
INSERT INTO attempt_by_key SELECT
    tenant_id, step_id, number, token, account, key_id, started_at, started_wall, first_byte_before, last_byte_before,
    ended_at, ended_as, code, absent, created_at, updated_at
FROM attempt;
DROP TABLE attempt;
ALTER TABLE attempt_by_key RENAME TO attempt;

CREATE TABLE message_in_place (
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
    UNIQUE (tenant_id, conversation_id, position)
) STRICT;
INSERT INTO message_in_place SELECT
    arrival, tenant_id, id, conversation_id, run_id, step_id, call_id, position, role, body, created_at, updated_at
FROM message;
DROP TABLE message;
ALTER TABLE message_in_place RENAME TO message;
CREATE UNIQUE INDEX message_one_result ON message (tenant_id, call_id) WHERE role = 'tool_result';
CREATE UNIQUE INDEX message_said ON message (tenant_id, id) WHERE step_id IS NULL;
