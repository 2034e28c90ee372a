-- All SQL of the PostgreSQL store. Each query has a comment of what it is for and, where it writes, of its guard.
-- :name is a parameter. :mono and :wall are the server's clock, read once for the statement; :mono_now and :wall_now are
-- read for each row, and again behind a lock that was waited for. Where the process's clock door is not the system's, all
-- four are the door's time. In the parts of batches, `rows AS new (...)` is what is written: an array for each column, or
-- the values of one decision; `new.ord` is the decision's number in the batch, `new.place` the row's number.
-- `won` are the decisions whose guard held: a part of a batch writes rows of these only.

-- Opening -------------------------------------------------------------------------------------------------------------

-- name: probe
-- Who answers, what it promises about commits, and its clock.
SELECT pg_backend_pid() AS pid, current_setting('server_version_num')::bigint AS version, pg_is_in_recovery() AS standby,
    current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit, current_setting('server_encoding') AS encoding,
    extract(epoch FROM clock_timestamp())::double precision AS clock,
    (SELECT extract(epoch FROM backend_start)::double precision FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS began,
    extract(epoch FROM pg_postmaster_start_time())::double precision AS booted

-- name: session_settings
-- A direct connection: for its life. Times in milliseconds. What waits for another one's row reads it anew then: at a
-- higher level, which a database may have as its default, it would be refused.
SET default_transaction_isolation = 'read committed'; SET synchronous_commit = {synchronous_commit};
SET lock_timeout = {lock_ms}; SET statement_timeout = {statement_ms}; SET idle_in_transaction_session_timeout = {idle_ms};
SET client_min_messages = warning; SET jit = off

-- name: writer_settings
-- For the connection that writes: each form of statement is planned once, and goes by an index also where the tables are
-- still small.
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off

-- name: transaction_settings
-- Behind a pooler: for one transaction, whichever server process serves it.
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = {synchronous_commit};
SET LOCAL lock_timeout = {lock_ms}; SET LOCAL statement_timeout = {statement_ms}

-- name: begin
-- A transaction of several statements, on a direct connection.
BEGIN

-- name: commit
-- Durable when it returns.
COMMIT

-- name: rollback
-- Nothing happened.
ROLLBACK

-- name: migration_lock
-- One process migrates at a time, until the end of its transaction.
SELECT pg_advisory_xact_lock(7235419260331854188)

-- name: has_schema_migration
-- Whether the list of migrations exists. Read from the catalog: to_regclass would go on saying no in the transaction that
-- had to wait for the lock, since what a name is not is remembered. And regnamespace would read the schema's name as SQL.
SELECT count(*) > 0 AS found FROM pg_class
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relname = 'schema_migration'

-- name: create_schema_migration
-- The list of what was applied, before the first migration.
CREATE TABLE IF NOT EXISTS schema_migration (
    version bigint NOT NULL PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision GENERATED ALWAYS AS (created_at) STORED
)

-- name: schema_migrations
-- What was applied.
SELECT version, name, checksum FROM schema_migration ORDER BY version

-- name: schema_migration_put
-- One migration was applied; in the transaction of all.
INSERT INTO schema_migration (version, name, checksum, created_at) VALUES (:version, :name, :checksum, :wall)

-- name: count_tables
-- Whether there is a table of another program with one of our names: a schema without our list of migrations has none.
SELECT count(*) AS count FROM pg_class
WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND relkind IN ('r', 'p')
    AND relname IN ('run', 'step', 'event', 'message', 'conversation', 'blob', 'meta', 'worker')

-- name: meta_first
-- A setting of the database that is made once; answers with what is kept, or with nothing where somebody else is making
-- it: then it is there for the next statement.
WITH made AS (
    INSERT INTO meta (key, value, created_at, updated_at) VALUES (:key, :value, :wall, :wall)
    ON CONFLICT (key) DO NOTHING RETURNING value
)
SELECT value FROM made UNION ALL SELECT value FROM meta WHERE key = :key LIMIT 1

-- name: meta_put
-- Sets it.
INSERT INTO meta (key, value, created_at, updated_at) VALUES (:key, :value, :wall, :wall)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at

-- name: now_once
-- What :mono and :wall stand for: a part of a statement that is worked out once, so that an index can be asked for it.
(SELECT extract(epoch FROM clock_timestamp())::double precision)

-- name: now_each
-- What :mono_now and :wall_now stand for.
extract(epoch FROM clock_timestamp())::double precision

-- Batches -------------------------------------------------------------------------------------------------------------

-- name: rows_of_many
-- What `rows AS new (...)` stands for in a batch of several decisions.
unnest({values}) WITH ORDINALITY AS new ({columns}, ord, place)

-- name: rows_of_one
-- What it stands for where there is one decision.
(VALUES {values}) AS new ({columns}, ord, place)

-- name: batch
-- The statement of a batch: its parts, and which decisions have won.
WITH {parts}
SELECT ARRAY(SELECT ord FROM won) AS won, extract(epoch FROM clock_timestamp())::double precision AS clock{checks}

-- name: batch_check
-- A row that must be changed and was not ends the statement with a division by zero: nothing of the batch is written, and
-- it is replayed one by one.
, 1 / ((SELECT count(*) FROM {part}) = (SELECT count(*) FROM {rows} JOIN won USING (ord)))::integer AS {part}

-- name: append_guard
-- The guard of every append, with all of the run's own columns: the only query that changes a run's status. The version is
-- the one that was decided on; a token, where given, is the row's; where a lease is needed, it is not over and the run is
-- not terminal; the wall time is before the expiry where there is one. It waits for a row no longer than LOCK_SECONDS_ONCE,
-- set before the first row is joined: the other decisions of the process wait with it.
UPDATE run SET
    version = new.version, event_sequence = new.event_sequence, step_count = new.step_count,
    next_position = new.next_position, turns = new.turns, input_tokens = new.input_tokens,
    output_tokens = new.output_tokens, cost_microdollars = new.cost_microdollars, result_step_id = new.result_step_id,
    queued = new.queued, last_committed_sequence = new.last_committed_sequence, updated_at = new.updated_at,
    status = new.status, error_code = new.error_code, ready_at = new.ready_at, wake_at = new.wake_at,
    agent_version = new.agent_version, limits = new.limits, signals = new.signals,
    result = coalesce(new.result, run.result),
    lease_owner = CASE WHEN new.released = 1 THEN NULL ELSE run.lease_owner END,
    lease_until = CASE WHEN new.released = 1 THEN 0.0 ELSE run.lease_until END
FROM set_config('lock_timeout', '250', true) AS waits, rows AS new (
    version bigint, event_sequence bigint, step_count bigint, next_position bigint, turns bigint, input_tokens bigint,
    output_tokens bigint, cost_microdollars bigint, result_step_id text, queued text, last_committed_sequence bigint,
    updated_at float8, tenant_id text, id text, before_version bigint, token bigint, status text, error_code text,
    ready_at float8, wake_at float8, agent_version text, limits text, signals text, result text, released bigint,
    needs_lease bigint, wall_before float8
)
WHERE run.tenant_id = new.tenant_id AND run.id = new.id AND run.version = new.before_version
    AND (new.token IS NULL OR run.lease_token = new.token)
    AND (new.needs_lease = 0
        OR (run.lease_until > :mono_now AND run.status NOT IN ('completed', 'failed', 'cancelled')))
    AND (new.wall_before IS NULL OR new.wall_before > :wall_now)
RETURNING new.ord

-- name: guard_facts
-- Which part of the guard failed, and the clock by which that is said.
SELECT version, status, lease_token, lease_until, (:mono)::float8 AS mono FROM run
WHERE tenant_id = :tenant_id AND id = :run_id

-- name: run_fence
-- A commit of its own behind whoever writes to the run, also over a connection that was lost: it takes the row's lock.
UPDATE run SET updated_at = updated_at WHERE tenant_id = :tenant_id AND id = :run_id

-- name: run_insert
-- New runs. Guard: a new conversation is made beside it, or the conversation is there and locked, so that no note is queued
-- meanwhile; the run that it works for, where there is one, has not ended, and is leased to whoever begins this one; the
-- unique keys refuse a second run under way in the conversation and a start key that was used. A status that is not the bare column fits no index of runs under way: the
-- run is found by its key.
INSERT INTO run (
    tenant_id, id, conversation_id, agent, agent_version, kind, status, version, event_sequence, step_count,
    next_position, turns, last_committed_sequence, started_mono, started_wall, limits, queued, error_code, ready_at,
    wake_at, lease_owner, lease_token, lease_until, start_key, start_hash, created_by, metadata, signals,
    parent_step_id, parent_run_id, created_at, updated_at, result, priority
)
SELECT
    new.tenant_id, new.id, new.conversation_id, new.agent, new.agent_version, new.kind, new.status, new.version,
    new.event_sequence, new.step_count, new.next_position, new.turns, new.last_committed_sequence, new.started_mono,
    new.started_wall, new.limits, new.queued, new.error_code, new.ready_at, new.wake_at, new.lease_owner,
    new.lease_token, CASE WHEN new.lease_owner IS NULL THEN 0.0 ELSE new.lease_s + :mono_now END, new.start_key,
    new.start_hash, new.created_by, new.metadata, new.signals, new.parent_step_id, new.parent_run_id, new.created_at,
    new.updated_at, new.result, new.priority
FROM rows AS new (
    tenant_id text, id text, conversation_id text, agent text, agent_version text, kind text, status text,
    version bigint, event_sequence bigint, step_count bigint, next_position bigint, turns bigint,
    last_committed_sequence bigint, started_mono float8, started_wall float8, limits text, queued text,
    error_code text, ready_at float8, wake_at float8, lease_owner text, lease_token bigint, lease_s float8,
    start_key text, start_hash text, created_by text, metadata text, signals text, parent_step_id text,
    parent_run_id text, created_at float8, updated_at float8, result text, priority bigint,
    new_conversation bigint, parent_token bigint
)
WHERE (new.new_conversation = 1 OR EXISTS (
        SELECT 1 FROM conversation
        WHERE conversation.tenant_id = new.tenant_id AND conversation.id = new.conversation_id
        FOR NO KEY UPDATE
    ))
    AND (new.parent_run_id IS NULL OR EXISTS (
        SELECT 1 FROM run AS parent
        WHERE parent.tenant_id = new.tenant_id AND parent.id = new.parent_run_id
            AND coalesce(parent.status, '') NOT IN ('completed', 'failed', 'cancelled')
            AND coalesce(new.parent_token, parent.lease_token) = parent.lease_token
        FOR SHARE
    ))
ON CONFLICT DO NOTHING
RETURNING tenant_id, id

-- name: run_inserted
-- Which of the new runs there are now.
SELECT new.ord FROM rows AS new (tenant_id text, id text) JOIN made ON made.tenant_id = new.tenant_id AND made.id = new.id

-- name: run_by_start_key
-- The run that was made first under a start key.
SELECT id, start_hash FROM run WHERE tenant_id = :tenant_id AND start_key = :start_key

-- name: run_exists
-- Whether there is such a run.
SELECT count(*) AS count FROM run WHERE tenant_id = :tenant_id AND id = :run_id

-- name: conversation_insert
-- A new conversation.
INSERT INTO conversation (tenant_id, id, next_position, created_at, updated_at)
SELECT new.tenant_id, new.id, new.next_position, new.created_at, new.updated_at
FROM rows AS new (tenant_id text, id text, next_position bigint, created_at float8, updated_at float8)
JOIN won USING (ord)

-- name: conversation_position
-- The next free position, once a run has ended. It only grows.
UPDATE conversation SET
    next_position = greatest(conversation.next_position, new.next_position), updated_at = new.updated_at
FROM rows AS new (next_position bigint, updated_at float8, tenant_id text, id text) JOIN won USING (ord)
WHERE conversation.tenant_id = new.tenant_id AND conversation.id = new.id

-- name: conversation_facts
-- The next free position and the run under way.
SELECT coalesce(run.next_position, conversation.next_position) AS next_position, run.id AS run_id
FROM conversation
LEFT JOIN run ON run.tenant_id = conversation.tenant_id AND run.conversation_id = conversation.id
    AND run.status NOT IN ('completed', 'failed', 'cancelled')
WHERE conversation.tenant_id = :tenant_id AND conversation.id = :conversation_id

-- name: step_insert
-- New steps.
INSERT INTO step (
    status, rules, tool_name, tool_version, call_id, position, operation_key, input_hash, input_ref, target, credential,
    account, owner_step_id, action_id, external_resource_id, resource_url, resolution, error_code, purpose, attempt,
    not_before, doubt_since, look_at, looks, sweep, person_absent, answered, receipts, attempts, safe_input, safe_output,
    updated_at, tenant_id, id, run_id, conversation_id, sequence, type, identity_hash, created_at
)
SELECT
    new.status, new.rules, new.tool_name, new.tool_version, new.call_id, new.position, new.operation_key, new.input_hash,
    new.input_ref, new.target, new.credential, new.account, new.owner_step_id, new.action_id, new.external_resource_id,
    new.resource_url, new.resolution, new.error_code, new.purpose, new.attempt, new.not_before, new.doubt_since,
    new.look_at, new.looks, new.sweep, new.person_absent, new.answered, new.receipts, new.attempts, new.safe_input,
    new.safe_output, new.updated_at, new.tenant_id, new.id, new.run_id, new.conversation_id, new.sequence, new.type, new.identity_hash,
    new.created_at
FROM rows AS new (
    status text, rules text, tool_name text, tool_version text, call_id text, position bigint, operation_key text,
    input_hash text, input_ref text, target text, credential text, account text, owner_step_id text, action_id text,
    external_resource_id text, resource_url text, resolution text, error_code text, purpose text, attempt bigint,
    not_before float8, doubt_since float8, look_at float8, looks bigint, sweep bigint, person_absent bigint,
    answered bigint, receipts text, attempts text, safe_input text, safe_output text, updated_at float8, tenant_id text,
    id text, run_id text, conversation_id text, sequence bigint, type text, identity_hash text, created_at float8
) JOIN won USING (ord)

-- name: step_update
-- The only query that changes a step's status. Guard: the run's append_guard. Views that are not given stay.
UPDATE step SET
    status = new.status, rules = new.rules, tool_name = new.tool_name, tool_version = new.tool_version,
    call_id = new.call_id, position = new.position, operation_key = new.operation_key, input_hash = new.input_hash,
    input_ref = new.input_ref, target = new.target, credential = new.credential, account = new.account,
    owner_step_id = new.owner_step_id, action_id = new.action_id, external_resource_id = new.external_resource_id,
    resource_url = new.resource_url, resolution = new.resolution, error_code = new.error_code, purpose = new.purpose,
    attempt = new.attempt, not_before = new.not_before, doubt_since = new.doubt_since, look_at = new.look_at,
    looks = new.looks, sweep = new.sweep, person_absent = new.person_absent, answered = new.answered,
    receipts = new.receipts, attempts = new.attempts, safe_input = coalesce(new.safe_input, step.safe_input),
    safe_output = coalesce(new.safe_output, step.safe_output), updated_at = new.updated_at
FROM rows AS new (
    status text, rules text, tool_name text, tool_version text, call_id text, position bigint, operation_key text,
    input_hash text, input_ref text, target text, credential text, account text, owner_step_id text, action_id text,
    external_resource_id text, resource_url text, resolution text, error_code text, purpose text, attempt bigint,
    not_before float8, doubt_since float8, look_at float8, looks bigint, sweep bigint, person_absent bigint,
    answered bigint, receipts text, attempts text, safe_input text, safe_output text, updated_at float8, tenant_id text,
    run_id text, sequence bigint
) JOIN won USING (ord)
WHERE step.tenant_id = new.tenant_id AND step.run_id = new.run_id AND step.sequence = new.sequence

-- name: step_view
-- Views of a step that did not change. Guard: the run's append_guard.
UPDATE step SET
    safe_input = coalesce(new.safe_input, step.safe_input), safe_output = coalesce(new.safe_output, step.safe_output),
    updated_at = new.updated_at
FROM rows AS new (safe_input text, safe_output text, updated_at float8, tenant_id text, run_id text, sequence bigint)
JOIN won USING (ord)
WHERE step.tenant_id = new.tenant_id AND step.run_id = new.run_id AND step.sequence = new.sequence

-- name: action_insert
-- Questions to a person, behind all that were written before.
INSERT INTO pending_action (
    arrival, status, why, expires_at, decision, decided_by, decided_at, decided_from, decision_key, reason, answer,
    updated_at, tenant_id, id, run_id, step_id, kind, input_hash, permission, arguments, preview, created_at
)
SELECT
    new.place + coalesce((
        SELECT max(earlier.arrival) FROM pending_action AS earlier WHERE earlier.tenant_id = new.tenant_id
    ), 0),
    new.status, new.why, new.expires_at, new.decision, new.decided_by, new.decided_at, new.decided_from,
    new.decision_key, new.reason, new.answer, new.updated_at, new.tenant_id, new.id, new.run_id, new.step_id, new.kind,
    new.input_hash, new.permission, new.arguments, new.preview, new.created_at
FROM rows AS new (
    status text, why text, expires_at float8, decision text, decided_by text, decided_at float8, decided_from text,
    decision_key text, reason text, answer text, updated_at float8, tenant_id text, id text, run_id text, step_id text,
    kind text, input_hash text, permission text, arguments text, preview text, created_at float8
) JOIN won USING (ord)

-- name: action_update
-- Its decision or its end. Guard: the run's append_guard.
UPDATE pending_action SET
    status = new.status, why = new.why, expires_at = new.expires_at, decision = new.decision,
    decided_by = new.decided_by, decided_at = coalesce(pending_action.decided_at, new.decided_at),
    decided_from = new.decided_from, decision_key = new.decision_key,
    reason = coalesce(new.reason, pending_action.reason), answer = coalesce(new.answer, pending_action.answer),
    updated_at = new.updated_at
FROM rows AS new (
    status text, why text, expires_at float8, decision text, decided_by text, decided_at float8, decided_from text,
    decision_key text, reason text, answer text, updated_at float8, tenant_id text, id text
) JOIN won USING (ord)
WHERE pending_action.tenant_id = new.tenant_id AND pending_action.id = new.id

-- name: message_insert
-- Messages, at their place or waiting for one behind those that wait. The unique keys refuse a taken place and a second
-- result.
INSERT INTO message (
    arrival, tenant_id, id, conversation_id, run_id, step_id, call_id, position, role, body, created_at, updated_at
)
SELECT
    CASE WHEN new.position IS NOT NULL THEN 0 ELSE new.place + coalesce((
        SELECT max(earlier.arrival) FROM message AS earlier
        WHERE earlier.tenant_id = new.tenant_id AND earlier.conversation_id = new.conversation_id
            AND earlier.position IS NULL
    ), 0) END,
    new.tenant_id, new.id, new.conversation_id, new.run_id, new.step_id, new.call_id, new.position, new.role, new.body,
    new.created_at, new.updated_at
FROM rows AS new (
    tenant_id text, id text, conversation_id text, run_id text, step_id text, call_id text, position bigint, role text,
    body text, created_at float8, updated_at float8
) JOIN won USING (ord)

-- name: message_place
-- Waiting messages get their places. Each row must change one: the message waits in this conversation.
UPDATE message SET
    position = new.position, run_id = new.run_id, step_id = new.step_id, call_id = new.call_id,
    updated_at = new.updated_at
FROM rows AS new (
    position bigint, run_id text, step_id text, call_id text, updated_at float8, tenant_id text, id text,
    conversation_id text
) JOIN won USING (ord)
WHERE message.tenant_id = new.tenant_id AND message.id = new.id AND message.conversation_id = new.conversation_id
    AND message.position IS NULL
RETURNING 1

-- name: evidence_insert
-- Evidence, behind all that was written before.
INSERT INTO evidence (
    arrival, tenant_id, run_id, step_id, attempt, verdict, source, reason, resource_id, resource_url, detail, created_at
)
SELECT
    new.place + coalesce((
        SELECT max(earlier.arrival) FROM evidence AS earlier WHERE earlier.tenant_id = new.tenant_id
    ), 0),
    new.tenant_id, new.run_id, new.step_id, new.attempt, new.verdict, new.source, new.reason, new.resource_id,
    new.resource_url, new.detail, new.created_at
FROM rows AS new (
    tenant_id text, run_id text, step_id text, attempt bigint, verdict text, source text, reason text, resource_id text,
    resource_url text, detail text, created_at float8
) JOIN won USING (ord)

-- name: event_insert
-- The events of each append; the unique key refuses a sequence that exists.
INSERT INTO event (tenant_id, run_id, sequence, events, version, type, at_mono, format, data, created_at)
SELECT
    new.tenant_id, new.run_id, new.sequence, new.events, new.version, new.type, new.at_mono, new.format, new.data,
    new.created_at
FROM rows AS new (
    tenant_id text, run_id text, sequence bigint, events bigint, version bigint, type text, at_mono float8, format bigint,
    data text, created_at float8
) JOIN won USING (ord)

-- name: blob_put
-- Bytes by content: the same bytes twice are one blob, which lives as long as its last use. In the order of their names,
-- so that two batches do not wait for each other.
INSERT INTO blob (tenant_id, ref, data, retention, run_id, created_at, updated_at)
SELECT
    new.tenant_id, new.ref, (array_agg(new.data))[1],
    CASE WHEN count(DISTINCT new.retention) = 1 THEN min(new.retention) ELSE 'shared' END,
    CASE WHEN count(DISTINCT new.run_id) = 1 THEN min(new.run_id) END, min(new.created_at), max(new.updated_at)
FROM rows AS new (
    tenant_id text, ref text, data bytea, retention text, run_id text, created_at float8, updated_at float8
) JOIN won USING (ord)
GROUP BY new.tenant_id, new.ref ORDER BY new.tenant_id, new.ref
ON CONFLICT (tenant_id, ref) DO UPDATE SET
    updated_at = excluded.updated_at,
    retention = CASE WHEN blob.retention = excluded.retention THEN blob.retention ELSE 'shared' END,
    run_id = CASE WHEN blob.run_id = excluded.run_id THEN blob.run_id END

-- name: blob_drop_transient
-- What was kept for a run only until its batch is answered, such as signed reasoning. All parts of a statement see the
-- rows as they were before it, so what the same decision puts (`kept`, names in a row) is named.
DELETE FROM blob
USING rows AS new (tenant_id text, run_id text, kept text) JOIN won USING (ord)
WHERE blob.tenant_id = new.tenant_id AND blob.run_id = new.run_id AND blob.retention = 'transient'
    AND strpos(new.kept, blob.ref) = 0

-- name: operation_key_claim
-- Steps take business keys. Each row must change one: nobody holds the key, or this step does, or a step that failed. Of
-- the latter nothing may have been found since, unless the last question about that was to have it undone, and no mark says
-- that it is not yet (arrival + 0: by its index the questions of all runs would be read; counted: an EXISTS would read all
-- marks).
INSERT INTO operation_key (tenant_id, operation_key, run_id, step_id, input_hash, created_at, updated_at)
SELECT
    new.tenant_id, new.operation_key, new.run_id, new.step_id, new.input_hash, new.created_at, new.updated_at
FROM rows AS new (
    tenant_id text, operation_key text, run_id text, step_id text, input_hash text, created_at float8, updated_at float8
) JOIN won USING (ord)
ON CONFLICT (tenant_id, operation_key) DO UPDATE SET
    run_id = excluded.run_id, step_id = excluded.step_id, input_hash = excluded.input_hash, updated_at = excluded.updated_at
WHERE operation_key.step_id = excluded.step_id OR EXISTS (
    SELECT 1 FROM step
    WHERE step.tenant_id = operation_key.tenant_id AND step.run_id = operation_key.run_id
        AND step.sequence = substring(right(operation_key.step_id, 9) FROM '[0-9]+$')::bigint AND step.status = 'failed'
        AND coalesce((
            SELECT asked.status = 'approved' AND (
                SELECT count(*) FROM mark
                WHERE mark.tenant_id = asked.tenant_id AND mark.kind IN ('undo', 'not_undone') AND mark.name = asked.id
            ) = 0 FROM pending_action AS asked
            WHERE asked.tenant_id = step.tenant_id AND asked.run_id = step.run_id AND asked.step_id = step.id
                AND asked.kind = 'duplicate'
            ORDER BY asked.arrival + 0 DESC LIMIT 1
        ), step.receipts = '[]')
)
RETURNING 1

-- Leases --------------------------------------------------------------------------------------------------------------

-- name: claimable
-- Whether there is a run that may be taken now.
SELECT EXISTS (
    SELECT 1 FROM run
    WHERE tenant_id = :tenant_id AND ready_at IS NOT NULL AND ready_at <= :mono AND blocked_code IS NULL
        AND (lease_owner IS NULL OR lease_until <= :mono)
        AND CASE kind WHEN 'perform' THEN 'perform:' || agent = ANY(:agents::text[])
            ELSE (agent, agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END
) OR EXISTS (
    SELECT 1 FROM run
    WHERE tenant_id = :tenant_id AND wake_at IS NOT NULL AND wake_at <= :wall AND blocked_code IS NULL
        AND (lease_owner IS NULL OR lease_until <= :mono)
        AND CASE kind WHEN 'perform' THEN 'perform:' || agent = ANY(:agents::text[])
            ELSE (agent, agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END
) AS found

-- name: claim_ready
-- Takes leases of runs that are ready and free, longest first, a step of priority being worth a minute; those that another
-- worker is taking just now are passed over. Guard: the row lock, under which the conditions are looked at again. Free:
-- nobody's, or the lease is over (a dead owner's ends with the proof).
WITH plain AS (
    SELECT run.tenant_id, run.id, run.lease_owner, run.ready_at AS since FROM run
    WHERE run.tenant_id = :tenant_id AND run.ready_at IS NOT NULL AND run.ready_at <= :mono AND run.priority = 0
        AND run.blocked_code IS NULL AND (run.lease_owner IS NULL OR run.lease_until <= :mono)
        AND CASE run.kind WHEN 'perform' THEN 'perform:' || run.agent = ANY(:agents::text[])
            ELSE (run.agent, run.agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END
    ORDER BY run.ready_at LIMIT :limit FOR NO KEY UPDATE OF run SKIP LOCKED
), other AS (
    SELECT run.tenant_id, run.id, run.lease_owner, run.ready_at - 60.0 * run.priority AS since FROM run
    WHERE run.tenant_id = :tenant_id AND run.ready_at IS NOT NULL AND run.ready_at <= :mono AND run.priority <> 0
        AND run.blocked_code IS NULL AND (run.lease_owner IS NULL OR run.lease_until <= :mono)
        AND CASE run.kind WHEN 'perform' THEN 'perform:' || run.agent = ANY(:agents::text[])
            ELSE (run.agent, run.agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END
    ORDER BY since LIMIT :limit FOR NO KEY UPDATE OF run SKIP LOCKED
), free AS (
    SELECT * FROM (SELECT * FROM plain UNION ALL SELECT * FROM other) AS ready ORDER BY since LIMIT :limit
), taken AS (
    UPDATE run SET lease_owner = :owner, lease_token = run.lease_token + 1, lease_until = :mono + :lease_s
    FROM free WHERE run.tenant_id = free.tenant_id AND run.id = free.id AND run.tenant_id = :tenant_id
    RETURNING run.id, run.lease_token, run.lease_until, free.lease_owner AS owner_before, free.since
)
SELECT taken.id, taken.lease_token, taken.lease_until, worker.dead_at IS NOT NULL AS owner_died,
    extract(epoch FROM clock_timestamp())::double precision AS clock
FROM taken LEFT JOIN worker ON worker.tenant_id = :tenant_id AND worker.id = taken.owner_before
ORDER BY taken.since, taken.id

-- name: claim_awake
-- The same for runs with a question that has expired.
WITH free AS (
    SELECT run.tenant_id, run.id, run.lease_owner, run.wake_at - 60.0 * run.priority AS since FROM run
    WHERE run.tenant_id = :tenant_id AND run.wake_at IS NOT NULL AND run.wake_at <= :wall
        AND run.blocked_code IS NULL AND (run.lease_owner IS NULL OR run.lease_until <= :mono)
        AND CASE run.kind WHEN 'perform' THEN 'perform:' || run.agent = ANY(:agents::text[])
            ELSE (run.agent, run.agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END
    ORDER BY since LIMIT :limit FOR NO KEY UPDATE OF run SKIP LOCKED
), taken AS (
    UPDATE run SET lease_owner = :owner, lease_token = run.lease_token + 1, lease_until = :mono + :lease_s
    FROM free WHERE run.tenant_id = free.tenant_id AND run.id = free.id AND run.tenant_id = :tenant_id
    RETURNING run.id, run.lease_token, run.lease_until, free.lease_owner AS owner_before, free.since
)
SELECT taken.id, taken.lease_token, taken.lease_until, worker.dead_at IS NOT NULL AS owner_died,
    extract(epoch FROM clock_timestamp())::double precision AS clock
FROM taken LEFT JOIN worker ON worker.tenant_id = :tenant_id AND worker.id = taken.owner_before
ORDER BY taken.since, taken.id

-- name: claim_one
-- The same for one run, ready or not, and set aside by that code or by none. Waits for whoever writes to it just now.
WITH free AS (
    SELECT run.tenant_id, run.id, run.lease_owner FROM run
    WHERE run.tenant_id = :tenant_id AND run.id = :run_id
        AND (run.blocked_code IS NULL OR run.blocked_code = :aside)
        AND (run.lease_owner IS NULL OR run.lease_until <= :mono_now)
    FOR NO KEY UPDATE OF run
), taken AS (
    UPDATE run SET lease_owner = :owner, lease_token = run.lease_token + 1, lease_until = :mono + :lease_s,
        blocked_code = NULL
    FROM free WHERE run.tenant_id = free.tenant_id AND run.id = free.id AND run.tenant_id = :tenant_id
    RETURNING run.id, run.lease_token, run.lease_until, free.lease_owner AS owner_before
)
SELECT taken.id, taken.lease_token, taken.lease_until, worker.dead_at IS NOT NULL AS owner_died,
    extract(epoch FROM clock_timestamp())::double precision AS clock
FROM taken LEFT JOIN worker ON worker.tenant_id = :tenant_id AND worker.id = taken.owner_before

-- name: lease_list
-- The leases of one worker of this process.
SELECT id, lease_token FROM run
WHERE tenant_id = :tenant_id AND lease_owner = :owner

-- name: lease_renew
-- Lengthens leases. Guard: the token is ours and the lease is not over. In the order of their ids. A run whose row somebody
-- else holds keeps the end that it has, and is tried again: waiting for it would cost all the others theirs.
WITH ours AS (
    SELECT run.tenant_id, run.id FROM run
    JOIN unnest(:run_ids::text[], :tokens::bigint[]) AS held (id, token)
        ON run.id = held.id AND run.lease_token = held.token
    WHERE run.tenant_id = :tenant_id AND run.lease_owner IS NOT NULL AND run.lease_until > :mono_now
    ORDER BY run.id FOR NO KEY UPDATE OF run SKIP LOCKED
), longer AS (
    UPDATE run SET lease_until = :mono + :lease_s
    FROM ours WHERE run.tenant_id = ours.tenant_id AND run.id = ours.id AND run.tenant_id = :tenant_id
    RETURNING run.id, run.lease_until
)
SELECT id, lease_until FROM longer
UNION ALL
SELECT run.id, run.lease_until FROM run
JOIN unnest(:run_ids::text[], :tokens::bigint[]) AS held (id, token)
    ON run.id = held.id AND run.lease_token = held.token
WHERE run.tenant_id = :tenant_id AND run.lease_owner IS NOT NULL AND run.lease_until > :mono_now
    AND NOT EXISTS (SELECT 1 FROM longer WHERE longer.id = run.id)

-- name: lease_release
-- Gives a lease back. Guard: the token is ours. It waits for the row no longer than a second, since others wait with it: what
-- is not given back ends by itself.
UPDATE run SET lease_owner = NULL, lease_until = 0.0
FROM set_config('lock_timeout', '1000', true) AS waits
WHERE tenant_id = :tenant_id AND id = :run_id AND lease_token = :token AND lease_owner IS NOT NULL

-- name: block
-- Notes why no worker can take the run, and ends its lease. Guard: the token is ours, where one is given; without one the
-- lease stays.
UPDATE run SET blocked_code = :code,
    lease_owner = CASE WHEN lease_token = :token::bigint THEN NULL ELSE lease_owner END,
    lease_until = CASE WHEN lease_token = :token::bigint THEN 0.0 ELSE lease_until END
WHERE tenant_id = :tenant_id AND id = :run_id AND lease_token = coalesce(:token::bigint, lease_token)

-- name: unblock
-- Blocked runs may be looked at again.
UPDATE run SET blocked_code = NULL WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL

-- name: next_wake
-- The earliest time at which a free run is ready, at which a leased run with something to do becomes free, and at which a
-- free run's question expires.
SELECT (
    SELECT ready_at FROM run
    WHERE tenant_id = :tenant_id AND ready_at IS NOT NULL AND blocked_code IS NULL
        AND (lease_owner IS NULL OR lease_until <= :mono)
        AND (:agents::text[] IS NULL OR CASE kind WHEN 'perform' THEN 'perform:' || agent = ANY(:agents::text[])
            ELSE (agent, agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END)
    ORDER BY ready_at LIMIT 1
) AS ready, (
    SELECT min(greatest(lease_until, coalesce(ready_at, 0.0))) FROM run
    WHERE lease_owner IS NOT NULL AND lease_until > :mono AND tenant_id = :tenant_id AND blocked_code IS NULL
        AND (ready_at IS NOT NULL OR wake_at IS NOT NULL)
        AND (:agents::text[] IS NULL OR CASE kind WHEN 'perform' THEN 'perform:' || agent = ANY(:agents::text[])
            ELSE (agent, agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END)
) AS lease_end, (
    SELECT wake_at FROM run
    WHERE tenant_id = :tenant_id AND wake_at IS NOT NULL AND blocked_code IS NULL
        AND (lease_owner IS NULL OR lease_until <= :mono)
        AND (:agents::text[] IS NULL OR CASE kind WHEN 'perform' THEN 'perform:' || agent = ANY(:agents::text[])
            ELSE (agent, agent_version) IN (SELECT * FROM unnest(:agents::text[], :agent_versions::text[])) END)
    ORDER BY wake_at LIMIT 1
) AS awake, extract(epoch FROM clock_timestamp())::double precision AS clock

-- Schedules ------------------------------------------------------------------------------------------------------------

-- name: throttle_put
-- A throttle that nobody has asked about before. Its first token is free.
INSERT INTO throttle (tenant_id, name, next_at, turn, created_at, updated_at)
VALUES (:tenant_id, :name, :mono, 0, :wall, :wall)
ON CONFLICT (tenant_id, name) DO NOTHING

-- name: throttle_facts
-- The next token, and the calls at once that other workers have.
SELECT next_at, turn, :mono AS mono, coalesce((
    SELECT sum(slots) FROM throttle_share AS share
    WHERE share.tenant_id = :tenant_id AND share.name = :name AND share.worker_id <> :worker_id
        AND share.held_until > :mono
), 0)::bigint AS taken
FROM throttle WHERE tenant_id = :tenant_id AND name = :name

-- name: throttle_take
-- A worker's share, and the tokens that it takes. Guard: nobody has had a turn since the facts were read.
WITH held AS (
    UPDATE throttle SET next_at = :next_at, turn = turn + 1, updated_at = :wall
    WHERE tenant_id = :tenant_id AND name = :name AND turn = :turn
    RETURNING tenant_id, name
), over AS (
    DELETE FROM throttle_share USING held
    WHERE throttle_share.tenant_id = held.tenant_id AND throttle_share.name = held.name
        AND throttle_share.tenant_id = :tenant_id AND throttle_share.worker_id <> :worker_id
        AND throttle_share.held_until <= :mono
)
INSERT INTO throttle_share (tenant_id, name, worker_id, slots, held_until, created_at, updated_at)
SELECT held.tenant_id, held.name, :worker_id, :slots, :mono + :lease_s, :wall, :wall FROM held
ON CONFLICT (tenant_id, name, worker_id) DO UPDATE SET
    slots = excluded.slots, held_until = excluded.held_until, updated_at = excluded.updated_at
RETURNING held_until

-- name: schedule_put
-- Up to where the due times of a schedule were dealt with. The last writer counts: a start key makes each of them one run.
INSERT INTO schedule (tenant_id, name, seen_until, created_at, updated_at)
VALUES (:tenant_id, :name, :until, :wall, :wall)
ON CONFLICT (tenant_id, name) DO UPDATE SET seen_until = excluded.seen_until, updated_at = excluded.updated_at

-- name: schedule_seen
-- Up to where they were.
SELECT seen_until FROM schedule WHERE tenant_id = :tenant_id AND name = :name

-- Workers -------------------------------------------------------------------------------------------------------------

-- name: worker_put
-- A process that takes leases; written before the first lease that it takes, and again with another session.
INSERT INTO worker (
    tenant_id, id, host, boot_id, pid, lock_name, session_pid, session_started, takes, started_at, created_at, updated_at
) VALUES (
    :tenant_id, :id, :host, :boot_id, :pid, :lock_name, :session_pid::bigint, :session_started::float8, :takes, :mono,
    :wall, :wall
)
ON CONFLICT (tenant_id, id) DO UPDATE SET
    session_pid = excluded.session_pid, session_started = excluded.session_started, updated_at = excluded.updated_at

-- name: worker_owners
-- Owners of leases of whom no death is noted; `gone` where the session that one had has ended by itself. Sessions say
-- nothing while the server has been up for less than :up_s.
SELECT worker.id, worker.lock_name, worker.host = :host AND worker.boot_id = :boot_id AS here,
    worker.session_pid IS NOT NULL AND pg_postmaster_start_time() < now() - make_interval(secs => :up_s)
        AND NOT EXISTS (
            SELECT 1 FROM pg_stat_activity AS session
            WHERE session.pid = worker.session_pid
                AND (session.backend_start IS NULL
                    OR abs(extract(epoch FROM session.backend_start)::float8 - worker.session_started) < 0.001)
        ) AS gone
FROM worker
WHERE worker.tenant_id = :tenant_id AND worker.dead_at IS NULL
    AND EXISTS (SELECT 1 FROM run WHERE run.tenant_id = worker.tenant_id AND run.lease_owner = worker.id)

-- name: workers_take
-- What workers take that are not known to be dead, and whose sessions, where they have one, go on.
SELECT worker.lock_name, worker.host = :host AND worker.boot_id = :boot_id AS here, worker.takes FROM worker
WHERE worker.tenant_id = :tenant_id AND worker.dead_at IS NULL AND worker.takes IS NOT NULL
    AND (worker.session_pid IS NULL OR EXISTS (
        SELECT 1 FROM pg_stat_activity AS session
        WHERE session.pid = worker.session_pid
            AND (session.backend_start IS NULL
                OR abs(extract(epoch FROM session.backend_start)::float8 - worker.session_started) < 0.001)
    ))

-- name: workers_dead
-- The locks of these workers are free: all their processes are gone, and their leases end at once, but for one whose row
-- somebody else holds, which ends by itself. Guard: not noted before.
WITH dead AS (
    UPDATE worker SET dead_at = :mono, updated_at = :wall
    WHERE worker.tenant_id = :tenant_id AND worker.id = ANY(:ids::text[]) AND worker.dead_at IS NULL
    RETURNING worker.id
)
UPDATE run SET lease_until = least(lease_until, :mono)
WHERE run.tenant_id = :tenant_id AND run.id IN (
    SELECT one.id FROM run AS one
    WHERE one.tenant_id = :tenant_id AND one.lease_owner = ANY(:ids::text[]) FOR NO KEY UPDATE OF one SKIP LOCKED
) AND run.lease_owner = ANY(:ids::text[])

-- name: workers_over
-- The sessions of these workers have ended: others may take their runs, but nothing is proven of their calls.
UPDATE run SET lease_until = least(lease_until, :mono)
WHERE run.tenant_id = :tenant_id AND run.id IN (
    SELECT one.id FROM run AS one
    WHERE one.tenant_id = :tenant_id AND one.lease_owner = ANY(:ids::text[]) AND one.lease_until > :mono_now
    FOR NO KEY UPDATE OF one SKIP LOCKED
) AND run.lease_owner = ANY(:ids::text[])

-- name: worker_forget
-- Dead workers that hold no lease any more; their lock files can go.
DELETE FROM worker
WHERE worker.tenant_id = :tenant_id AND worker.dead_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = worker.tenant_id AND run.lease_owner = worker.id)
RETURNING lock_name, host = :host AND boot_id = :boot_id AS here

-- name: worker_remove
-- Workers that stopped cleanly. Guard: they hold no lease.
DELETE FROM worker
WHERE worker.tenant_id = :tenant_id AND worker.id = ANY(:ids::text[])
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = worker.tenant_id AND run.lease_owner = worker.id)
RETURNING id

-- Reading -------------------------------------------------------------------------------------------------------------

-- name: run_get
-- One run.
SELECT * FROM run WHERE tenant_id = :tenant_id AND id = :run_id

-- name: runs_of_ids
-- Several runs by their ids.
SELECT * FROM run WHERE tenant_id = :tenant_id AND id = ANY(:run_ids::text[])

-- name: runs_of_parent
-- The runs that work on calls of this one.
SELECT * FROM run WHERE tenant_id = :tenant_id AND parent_run_id = :run_id

-- name: runs_list
-- Runs, newest first.
SELECT * FROM run
WHERE tenant_id = :tenant_id AND (:before::text IS NULL OR id < :before)
    AND (:status::text IS NULL OR status = :status) AND (:agent::text IS NULL OR agent = :agent)
ORDER BY id DESC LIMIT :limit

-- name: runs_list_open
-- The same of a status that is no end. OFFSET 0 has the runs under way read by their index, however few have the status:
-- a plan for any status goes through all runs by their ids.
SELECT * FROM (
    SELECT * FROM run WHERE tenant_id = :tenant_id AND status NOT IN ('completed', 'failed', 'cancelled') OFFSET 0
) AS open
WHERE tenant_id = :tenant_id AND status = :status
    AND (:before::text IS NULL OR id < :before) AND (:agent::text IS NULL OR agent = :agent)
ORDER BY id DESC LIMIT :limit

-- name: load_runs
-- Runs with what a run in memory holds: their live steps (of those behind what they have committed the ones that have not
-- ended, and all that are in doubt or looked up again), closed ones about which a person is asked, the step named, and all
-- actions that belong to them; each row as JSON. One state of the database.
WITH chosen AS ({chosen}), asked AS (
    SELECT pending_action.* FROM chosen
    JOIN pending_action ON pending_action.tenant_id = chosen.tenant_id AND pending_action.run_id = chosen.id
        AND pending_action.status = 'waiting'
), names AS (
    SELECT step.tenant_id, step.run_id, step.sequence FROM chosen
    JOIN step ON step.tenant_id = chosen.tenant_id AND step.run_id = chosen.id
        AND step.sequence > chosen.last_committed_sequence
        AND step.status NOT IN ('succeeded', 'failed') AND step.doubt_since IS NULL AND step.look_at IS NULL
    UNION ALL SELECT step.tenant_id, step.run_id, step.sequence FROM chosen
    JOIN step ON step.tenant_id = chosen.tenant_id AND step.run_id = chosen.id
        AND (step.doubt_since IS NOT NULL OR step.look_at IS NOT NULL)
        AND (step.status NOT IN ('succeeded', 'failed') OR step.look_at IS NOT NULL)
    UNION SELECT asked.tenant_id, asked.run_id, substring(right(asked.step_id, 9) FROM '[0-9]+$')::bigint FROM asked
    UNION SELECT chosen.tenant_id, chosen.id, :sequence::bigint FROM chosen WHERE :sequence::bigint IS NOT NULL
), kept AS (
    SELECT step.* FROM names
    JOIN step ON step.tenant_id = names.tenant_id AND step.run_id = names.run_id AND step.sequence = names.sequence
)
SELECT 'run' AS record, row_to_json(chosen)::text AS data FROM chosen
UNION ALL SELECT 'step', row_to_json(kept)::text FROM kept
UNION ALL SELECT 'action', row_to_json(asked)::text FROM asked
UNION ALL SELECT 'action', row_to_json(pending_action)::text FROM kept
    JOIN pending_action ON pending_action.tenant_id = kept.tenant_id AND pending_action.id = kept.action_id
        AND pending_action.run_id = kept.run_id AND pending_action.status = 'approved'
UNION ALL SELECT 'action', row_to_json(pending_action)::text FROM chosen
    JOIN pending_action ON pending_action.tenant_id = chosen.tenant_id AND pending_action.run_id = chosen.id
        AND pending_action.step_id = :step_id

-- name: run_shown
-- A run with all its steps, actions and evidence; each row as JSON, `told` as in load_steps. One state of the database.
WITH chosen AS (
    SELECT * FROM run WHERE tenant_id = :tenant_id AND id = :run_id
), shown AS (
    SELECT step.*, CASE WHEN step.safe_output = '' THEN (
        SELECT message.body FROM message WHERE message.tenant_id = step.tenant_id
            AND message.call_id = step.call_id AND message.role = 'tool_result'
    ) END AS told
    FROM chosen JOIN step ON step.tenant_id = chosen.tenant_id AND step.run_id = chosen.id
), asked AS (
    SELECT pending_action.*, shown.tool_name FROM chosen
    JOIN pending_action ON pending_action.tenant_id = chosen.tenant_id AND pending_action.run_id = chosen.id
    LEFT JOIN shown ON shown.tenant_id = pending_action.tenant_id AND shown.id = pending_action.step_id
)
SELECT 'run' AS record, row_to_json(chosen)::text AS data FROM chosen
UNION ALL SELECT 'step', row_to_json(shown)::text FROM shown
UNION ALL SELECT 'action', row_to_json(asked)::text FROM asked
UNION ALL SELECT 'evidence', row_to_json(evidence)::text FROM chosen
    JOIN evidence ON evidence.tenant_id = chosen.tenant_id AND evidence.run_id = chosen.id

-- name: load_steps
-- Steps; each row as JSON. `told`: the result that the model was told, where the view of the output is that.
WITH chosen AS ({chosen}), shown AS (
    SELECT chosen.*, CASE WHEN chosen.safe_output = '' THEN (
        SELECT message.body FROM message WHERE message.tenant_id = chosen.tenant_id
            AND message.call_id = chosen.call_id AND message.role = 'tool_result'
    ) END AS told FROM chosen
)
SELECT 'step' AS record, row_to_json(shown)::text AS data FROM shown

-- name: run_versions
-- The versions of some runs.
SELECT id, version FROM run WHERE tenant_id = :tenant_id AND id = ANY(:run_ids::text[])

-- name: run_ids
-- All runs, oldest first.
SELECT id FROM run WHERE tenant_id = :tenant_id ORDER BY id

-- name: steps_all
-- All steps of a run.
SELECT * FROM step WHERE tenant_id = :tenant_id AND run_id = :run_id

-- name: step_get
-- One step.
SELECT * FROM step WHERE tenant_id = :tenant_id AND run_id = :run_id AND sequence = :sequence AND id = :step_id

-- name: step_by_operation_key
-- The step that owns a key: the holder of a business key, else the step whose id the key ends with.
SELECT step.* FROM (
    SELECT run_id, step_id FROM operation_key WHERE tenant_id = :tenant_id AND operation_key = :operation_key
    UNION ALL SELECT :run_id::text COLLATE "C", :step_id::text COLLATE "C"
    LIMIT 1
) AS owner
JOIN step ON step.tenant_id = :tenant_id AND step.run_id = owner.run_id
    AND step.sequence = substring(right(owner.step_id, 9) FROM '[0-9]+$')::bigint AND step.id = owner.step_id
WHERE coalesce(step.operation_key, step.run_id || ':' || step.id) = :operation_key

-- name: step_same_action
-- The newest step of a conversation with this identity that has acted or may have. What was found of one that had failed
-- has an id, or a question about it alone.
SELECT * FROM step
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND identity_hash = :identity_hash
    AND (status IN ('succeeded', 'running', 'outcome_unknown') OR (status = 'failed' AND (receipts <> '[]' OR EXISTS (
        SELECT 1 FROM pending_action AS asked
        WHERE asked.tenant_id = step.tenant_id AND asked.run_id = step.run_id AND asked.step_id = step.id
            AND asked.kind = 'duplicate'
    ))))
ORDER BY id DESC LIMIT 1

-- name: steps_acted
-- The calls of a conversation that change something outside: only they have an identity, and an index by it.
SELECT * FROM step
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND identity_hash IS NOT NULL

-- name: key_owner
-- Who holds a business key.
SELECT run_id, step_id, input_hash FROM operation_key WHERE tenant_id = :tenant_id AND operation_key = :operation_key

-- name: evidence_of_run
-- All evidence of a run, oldest first.
SELECT * FROM evidence WHERE tenant_id = :tenant_id AND run_id = :run_id ORDER BY arrival

-- name: action_get
-- One action, with its tool.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = substring(right(pending_action.step_id, 9) FROM '[0-9]+$')::bigint
WHERE pending_action.tenant_id = :tenant_id AND pending_action.id = :action_id

-- name: actions_list
-- Actions of a tenant, oldest first.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = substring(right(pending_action.step_id, 9) FROM '[0-9]+$')::bigint
WHERE pending_action.tenant_id = :tenant_id AND (:status::text IS NULL OR pending_action.status = :status)
    AND (pending_action.arrival, pending_action.id) > (
        coalesce((SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after::text), 0),
        coalesce(:after::text, '') COLLATE "C"
    )
ORDER BY pending_action.arrival, pending_action.id LIMIT :limit

-- name: actions_list_waiting
-- The inbox, oldest first.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = substring(right(pending_action.step_id, 9) FROM '[0-9]+$')::bigint
WHERE pending_action.tenant_id = :tenant_id AND pending_action.status = 'waiting'
    AND (pending_action.arrival, pending_action.id) > (
        coalesce((SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after::text), 0),
        coalesce(:after::text, '') COLLATE "C"
    )
ORDER BY pending_action.arrival, pending_action.id LIMIT :limit

-- name: actions_of_run
-- Actions of a run, oldest first.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = substring(right(pending_action.step_id, 9) FROM '[0-9]+$')::bigint
WHERE pending_action.tenant_id = :tenant_id AND pending_action.run_id = :run_id
    AND (:status::text IS NULL OR pending_action.status = :status)
    AND (pending_action.arrival, pending_action.id) > (
        coalesce((SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after::text), 0),
        coalesce(:after::text, '') COLLATE "C"
    )
ORDER BY pending_action.arrival, pending_action.id LIMIT :limit

-- name: actions_below_run
-- Actions of a run, and of the runs that work for it and for them, oldest first.
WITH RECURSIVE below (id) AS (
    SELECT :run_id::text COLLATE "C"
    UNION
    SELECT run.id FROM below JOIN run ON run.tenant_id = :tenant_id AND run.parent_run_id = below.id
)
SELECT pending_action.*, step.tool_name FROM below
JOIN pending_action ON pending_action.tenant_id = :tenant_id AND pending_action.run_id = below.id
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = substring(right(pending_action.step_id, 9) FROM '[0-9]+$')::bigint
WHERE (:status::text IS NULL OR pending_action.status = :status)
    AND (pending_action.arrival, pending_action.id) > (
        coalesce((SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after::text), 0),
        coalesce(:after::text, '') COLLATE "C"
    )
ORDER BY pending_action.arrival, pending_action.id LIMIT :limit

-- name: events_after
-- Events of a run in order, as appends: all that hold one of the :limit events behind :after; and whether there is such a
-- run where there is no event.
SELECT event.*, run.id AS known FROM run
LEFT JOIN event ON event.tenant_id = run.tenant_id AND event.run_id = run.id AND event.sequence > :after
    AND event.sequence <= coalesce((
        SELECT min(reached.sequence) FROM event AS reached
        WHERE reached.tenant_id = :tenant_id AND reached.run_id = :run_id
            AND reached.sequence >= :after::bigint + :limit::bigint
    ), 9223372036854775807)
WHERE run.tenant_id = :tenant_id AND run.id = :run_id
ORDER BY event.sequence

-- name: messages_placed
-- The conversation in order.
SELECT * FROM message
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND position > :after ORDER BY position
LIMIT :limit::bigint

-- name: messages_queued
-- What waits for a place, in the order of arrival.
SELECT * FROM message
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND position IS NULL ORDER BY arrival, id

-- name: blob_get
-- Bytes by content.
SELECT data FROM blob WHERE tenant_id = :tenant_id AND ref = :ref

-- The service ---------------------------------------------------------------------------------------------------------

-- name: credential_put
-- A new token or session. The unique key refuses an id that exists.
INSERT INTO credential (
    tenant_id, id, kind, name, secret_hash, permissions, parent_id, expires_at, revoked_at, created_at, updated_at
) VALUES (
    :tenant_id, :id, :kind, :name, :secret_hash, :permissions, :parent_id, :expires_at, :revoked_at, :created_at,
    :created_at
)

-- name: credential_get
-- One of them.
SELECT * FROM credential WHERE tenant_id = :tenant_id AND id = :id

-- name: credentials_list
-- All of a kind, oldest first.
SELECT * FROM credential WHERE tenant_id = :tenant_id AND kind = :kind ORDER BY created_at, id

-- name: token_tenants
-- Whose tokens there are: a lookup across tenants, at the start of a server.
SELECT DISTINCT tenant_id FROM credential WHERE kind = 'token' AND revoked_at IS NULL ORDER BY tenant_id

-- name: credential_revoke
-- The end of a token with its sessions, or of a session. Guard: it has not ended before.
UPDATE credential SET revoked_at = :wall, updated_at = :wall
WHERE tenant_id = :tenant_id AND (id = :id OR parent_id = :id) AND revoked_at IS NULL
RETURNING id

-- name: announcements_due
-- Whether there is a waiting action that a hook is to be told of: one behind :after that nobody has told it of, or one to
-- be tried again; and the newest action. What the hook was told of is asked for by its key, never joined: it may be much.
SELECT EXISTS (
    SELECT FROM pending_action
    WHERE tenant_id = :tenant_id AND status = 'waiting' AND arrival > :after::bigint
        AND (expires_at IS NULL OR expires_at > :wall)
        AND (
            SELECT 1 FROM announcement
            WHERE announcement.tenant_id = :tenant_id AND announcement.action_id = pending_action.id AND hook = :hook
        ) IS NULL
) OR EXISTS (
    SELECT FROM announcement
    WHERE tenant_id = :tenant_id AND hook = :hook AND next_at <= :wall AND attempts < :attempts_max
        AND (
            SELECT 1 FROM pending_action
            WHERE pending_action.tenant_id = :tenant_id AND pending_action.id = announcement.action_id
                AND status = 'waiting' AND (expires_at IS NULL OR expires_at > :wall)
        ) = 1
) AS found, coalesce((SELECT max(arrival) FROM pending_action WHERE tenant_id = :tenant_id), 0) AS newest

-- name: announcements_take
-- This process tells of them now, oldest first: no other does before :again_s are over. Guard: whoever else takes one at the
-- same time finds that it is not due any more. What was to be tried again and needs it no longer is not looked at again.
WITH fresh AS (
    SELECT id, arrival FROM pending_action
    WHERE tenant_id = :tenant_id AND status = 'waiting' AND arrival > :after::bigint
        AND (expires_at IS NULL OR expires_at > :wall)
        AND (
            SELECT 1 FROM announcement
            WHERE announcement.tenant_id = :tenant_id AND announcement.action_id = pending_action.id AND hook = :hook
        ) IS NULL
    ORDER BY arrival, id LIMIT :limit
), again AS (
    SELECT action_id AS id, (
        SELECT arrival FROM pending_action
        WHERE pending_action.tenant_id = :tenant_id AND pending_action.id = announcement.action_id
            AND status = 'waiting' AND (expires_at IS NULL OR expires_at > :wall)
            AND announcement.attempts < :attempts_max
    ) AS arrival
    FROM announcement WHERE tenant_id = :tenant_id AND hook = :hook AND next_at <= :wall
    ORDER BY next_at LIMIT :limit
), over AS (
    UPDATE announcement SET next_at = NULL, updated_at = :wall
    WHERE tenant_id = :tenant_id AND hook = :hook
        AND action_id = ANY (ARRAY (SELECT id FROM again WHERE arrival IS NULL))
), due AS (
    SELECT id, arrival FROM (
        SELECT id, arrival FROM fresh UNION ALL SELECT id, arrival FROM again WHERE arrival IS NOT NULL
    ) AS both_kinds ORDER BY arrival, id LIMIT :limit
), taken AS (
    INSERT INTO announcement (tenant_id, action_id, hook, attempts, next_at, outcome, created_at, updated_at)
    SELECT :tenant_id, due.id, :hook, 1, :wall + :again_s, NULL, :wall, :wall FROM due ORDER BY due.id
    ON CONFLICT (tenant_id, action_id, hook) DO UPDATE SET
        attempts = announcement.attempts + 1, next_at = excluded.next_at, updated_at = excluded.updated_at
    WHERE announcement.next_at <= :wall AND announcement.attempts < :attempts_max
    RETURNING action_id, attempts
)
SELECT taken.action_id AS id, taken.attempts AS attempt FROM taken JOIN due ON due.id = taken.action_id
ORDER BY due.arrival, due.id

-- name: announcements_next
-- When the first of them is due; 0 where nobody has tried yet.
SELECT CASE WHEN EXISTS (
    SELECT FROM pending_action
    WHERE tenant_id = :tenant_id AND status = 'waiting' AND arrival > :after::bigint
        AND (expires_at IS NULL OR expires_at > :wall)
        AND (
            SELECT 1 FROM announcement
            WHERE announcement.tenant_id = :tenant_id AND announcement.action_id = pending_action.id AND hook = :hook
        ) IS NULL
) THEN 0.0::float8 ELSE (
    SELECT next_at FROM announcement
    WHERE tenant_id = :tenant_id AND hook = :hook AND next_at IS NOT NULL AND attempts < :attempts_max
        AND (
            SELECT 1 FROM pending_action
            WHERE pending_action.tenant_id = :tenant_id AND pending_action.id = announcement.action_id
                AND status = 'waiting' AND (expires_at IS NULL OR expires_at > :wall)
        ) = 1
    ORDER BY next_at LIMIT 1
) END AS due

-- name: announcement_done
-- How it went: again after :again_s, or never.
UPDATE announcement SET outcome = :outcome, next_at = :wall + :again_s::float8, updated_at = :wall
WHERE tenant_id = :tenant_id AND action_id = :action_id AND hook = :hook

-- name: mark_put
-- A small fact by name; the last writer counts. Answers with what was kept before.
WITH earlier AS (
    SELECT value FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name = :name
), put AS (
    INSERT INTO mark (tenant_id, kind, name, value, created_at, updated_at)
    VALUES (:tenant_id, :kind, :name, :value, :wall, :wall)
    ON CONFLICT (tenant_id, kind, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
    RETURNING xmax = 0 AS fresh
)
SELECT (SELECT value FROM earlier) AS value, fresh FROM put

-- name: mark_get
-- What is kept.
SELECT value FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name = :name

-- name: marks_of
-- The names of a kind, in their order, from behind :after on.
SELECT name FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name > :after ORDER BY name LIMIT :limit

-- name: mark_drop
-- It is of no use any more.
DELETE FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name = :name

-- name: counts
-- How much there is, as (what, name, number): runs under way and runs over by status, blocked runs by why, steps that are
-- open or will be looked up again by status, waiting questions by kind; how many runs are driven, since when the oldest
-- question waits, how many processes are not known to be dead.
SELECT 'runs' AS what, status AS name, count(*)::float8 AS number FROM run
WHERE tenant_id = :tenant_id AND status NOT IN ('completed', 'failed', 'cancelled') GROUP BY status
UNION ALL SELECT 'runs', status, count(*) FROM run
WHERE tenant_id = :tenant_id AND status IN ('completed', 'failed', 'cancelled') GROUP BY status
UNION ALL SELECT 'blocked', blocked_code, count(*) FROM run
WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL GROUP BY blocked_code
UNION ALL SELECT 'steps', status, count(*) FROM (
    SELECT step.status FROM (
        SELECT tenant_id, id, last_committed_sequence FROM run
        WHERE tenant_id = :tenant_id AND status NOT IN ('completed', 'failed', 'cancelled')
        UNION SELECT tenant_id, id, last_committed_sequence FROM run
        WHERE tenant_id = :tenant_id AND ready_at IS NOT NULL AND blocked_code IS NULL
        UNION SELECT tenant_id, id, last_committed_sequence FROM run
        WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL
    ) AS open
    JOIN step ON step.tenant_id = open.tenant_id AND step.run_id = open.id
        AND step.sequence > open.last_committed_sequence
        AND step.status NOT IN ('succeeded', 'failed') AND step.doubt_since IS NULL AND step.look_at IS NULL
    UNION ALL SELECT status FROM step
    WHERE tenant_id = :tenant_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
        AND (status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL)
) AS counted GROUP BY status
UNION ALL SELECT 'actions', kind, count(*) FROM pending_action
WHERE tenant_id = :tenant_id AND status = 'waiting' GROUP BY kind
UNION ALL SELECT 'leased', '', count(*) FROM run WHERE tenant_id = :tenant_id AND lease_owner IS NOT NULL
UNION ALL SELECT 'oldest', '', (
    SELECT created_at FROM pending_action
    WHERE tenant_id = :tenant_id AND status = 'waiting' ORDER BY arrival, id LIMIT 1
)
UNION ALL SELECT 'workers', '', count(*) FROM worker
WHERE tenant_id = :tenant_id AND dead_at IS NULL
    AND (worker.session_pid IS NULL OR EXISTS (
        SELECT 1 FROM pg_stat_activity AS session
        WHERE session.pid = worker.session_pid
            AND (session.backend_start IS NULL
                OR abs(extract(epoch FROM session.backend_start)::float8 - worker.session_started) < 0.001)
    ))

-- name: runs_blocked
-- Runs that were set aside for one reason, by id. There are few; by their ids alone all runs would be read.
WITH found AS MATERIALIZED (
    SELECT id FROM run WHERE tenant_id = :tenant_id AND blocked_code = :code
)
SELECT id FROM found WHERE id > :after ORDER BY id LIMIT :limit

-- name: steps_unknown_at
-- Steps whose outcome is unknown at one target, by id. They are few beside all there ever were; by their ids alone all
-- would be read.
WITH found AS MATERIALIZED (
    SELECT id FROM step
    WHERE tenant_id = :tenant_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
        AND status = 'outcome_unknown' AND lower(target COLLATE "C") = lower(:target::text COLLATE "C")
)
SELECT id FROM found ORDER BY id LIMIT :limit

-- name: steps_unlooked
-- Steps of these tools whose outcome is unknown and that are not looked up, by id, less those that were given up.
WITH found AS MATERIALIZED (
    SELECT id FROM step
    WHERE tenant_id = :tenant_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
        AND status = 'outcome_unknown' AND look_at IS NULL AND resolution IS NULL AND tool_name = ANY(:tools::text[])
)
SELECT id FROM found WHERE id > :after ORDER BY id LIMIT :limit

-- name: calls_untold
-- Calls that wait for a run which has ended, though their next look at it is still to come: nobody has told them. From the
-- callers that have something due within :ahead_s, which is as late as such a look can be.
SELECT step.id FROM run AS caller
JOIN run AS child ON child.tenant_id = :tenant_id AND child.parent_run_id = caller.id
    AND child.status IN ('completed', 'failed', 'cancelled')
JOIN step ON step.tenant_id = :tenant_id AND step.run_id = caller.id
    AND step.sequence = substring(right(child.parent_step_id, 9) FROM '[0-9]+$')::bigint AND step.status = 'pending' AND step.not_before > :mono
WHERE caller.tenant_id = :tenant_id AND caller.ready_at IS NOT NULL AND caller.ready_at <= :mono + :ahead_s
    AND caller.blocked_code IS NULL
ORDER BY caller.ready_at LIMIT :limit

-- name: count_runs_blocked
-- Runs that no worker can take, by why.
SELECT blocked_code AS name, count(*) AS count FROM run
WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL GROUP BY blocked_code

-- name: count_evidence
-- Evidence behind a place, by verdict and source, and the newest place of each.
SELECT verdict, source, count(*) AS count, max(arrival) AS newest FROM evidence
WHERE tenant_id = :tenant_id AND arrival > :after GROUP BY verdict, source

-- name: statistics
-- What happened in a span, as (what, name, bucket, number): the newest runs by bucket of their start and by status, the
-- seconds from each question to its decision by a person, what lookups answered by verdict. Inner limits bound what is read.
-- A time behind the year 9999 is damage, and no number of a bucket.
SELECT 'run' AS what, started.status AS name, floor((started.created_at - :since) / :bucket_s)::bigint AS bucket,
    count(*)::float8 AS number
FROM (
    SELECT created_at, status FROM run
    WHERE tenant_id = :tenant_id AND id >= :from_run AND created_at >= :since AND created_at < 253402300799
    ORDER BY id DESC LIMIT :rows_max
) AS started
GROUP BY bucket, started.status
UNION ALL
SELECT 'approval', '', 0, decided.seconds FROM (
    SELECT decided_at - created_at AS seconds FROM pending_action
    WHERE tenant_id = :tenant_id AND id >= :from_action AND created_at >= :since
        AND kind = 'approve' AND decided_at IS NOT NULL AND decided_by IS NOT NULL
    ORDER BY id DESC LIMIT :rows_max
) AS decided
UNION ALL
SELECT 'lookup', answered.verdict, 0, count(*) FROM (
    SELECT verdict FROM evidence
    WHERE tenant_id = :tenant_id AND run_id >= :from_run AND source = 'lookup' AND created_at >= :since
    ORDER BY run_id DESC LIMIT :rows_max
) AS answered
GROUP BY answered.verdict

-- Waiting -------------------------------------------------------------------------------------------------------------

-- name: listen
-- For the connection that listens and tells: it is known by its name, writes nothing that has to last, and may be silent.
SET application_name = 'surefoot listener'; SET synchronous_commit = off; SET idle_session_timeout = 0

-- name: notify
-- Tells the other processes what has changed, after the commit: inside it, it would make all commits of the database wait
-- for each other. Where nobody but
-- :own listens, it writes nothing.
SELECT pg_notify(:channel, :payload) FROM (
    SELECT 1 FROM pg_stat_activity
    WHERE application_name = 'surefoot listener' AND datname = current_database() AND pid <> :own LIMIT 1
) AS somebody

-- Upkeep --------------------------------------------------------------------------------------------------------------

-- name: orphans
-- Rows without the row that they belong to, and runs whose events are not all there: of all tenants, each by its own.
SELECT 'step ' || id || ' has no run' AS finding FROM step
WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = step.tenant_id AND run.id = step.run_id)
UNION ALL
SELECT 'action ' || id || ' has no run' FROM pending_action
WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = pending_action.tenant_id AND run.id = pending_action.run_id)
UNION ALL
SELECT 'message ' || id || ' has no conversation' FROM message
WHERE NOT EXISTS (
    SELECT 1 FROM conversation
    WHERE conversation.tenant_id = message.tenant_id AND conversation.id = message.conversation_id
)
UNION ALL
SELECT 'run ' || id || ' lacks events' FROM run
WHERE event_sequence <> (
    SELECT coalesce(sum(event.events), 0) FROM event WHERE event.tenant_id = run.tenant_id AND event.run_id = run.id
)
UNION ALL
SELECT 'event ' || sequence || ' of ' || run_id || ' has no run' FROM event
WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = event.tenant_id AND run.id = event.run_id)
LIMIT 1000

-- name: prunable_runs
-- Terminal runs that are old enough and that no open question, no look, nothing that is to be undone and no call that they
-- work on needs; nobody writes to them meanwhile.
SELECT run.id FROM run
WHERE run.tenant_id = :tenant_id AND run.status IN ('completed', 'failed', 'cancelled') AND run.updated_at < :ended_before
    AND NOT EXISTS (
        SELECT 1 FROM step
        WHERE step.tenant_id = run.tenant_id AND step.run_id = run.id
            AND (step.status NOT IN ('succeeded', 'failed') OR step.look_at IS NOT NULL)
            AND NOT (step.status = 'outcome_unknown' AND step.resolution IS NOT DISTINCT FROM 'given_up'
                AND step.look_at IS NULL)
    )
    AND NOT EXISTS (
        SELECT 1 FROM pending_action
        WHERE pending_action.tenant_id = run.tenant_id AND pending_action.run_id = run.id
            AND pending_action.status = 'waiting'
    )
    AND run.id NOT IN (SELECT mark.value FROM mark WHERE mark.tenant_id = :tenant_id AND mark.kind = 'undo')
    AND NOT EXISTS (
        SELECT 1 FROM run AS caller
        WHERE caller.tenant_id = run.tenant_id AND caller.id = run.parent_run_id
            AND caller.status NOT IN ('completed', 'failed', 'cancelled')
    )
ORDER BY run.id LIMIT :limit FOR UPDATE OF run SKIP LOCKED

-- name: prune_runs
-- These runs with all that belongs to them, as (record, count). Guard: prunable_runs has locked them in this transaction.
WITH operation_keys AS (
    DELETE FROM operation_key USING step
    WHERE operation_key.tenant_id = :tenant_id AND operation_key.run_id = ANY(:run_ids::text[])
        AND step.tenant_id = operation_key.tenant_id AND step.run_id = operation_key.run_id
        AND step.operation_key = operation_key.operation_key AND step.id = operation_key.step_id
    RETURNING 1
), steps AS (
    DELETE FROM step WHERE tenant_id = :tenant_id AND run_id = ANY(:run_ids::text[]) RETURNING 1
), actions AS (
    DELETE FROM pending_action WHERE tenant_id = :tenant_id AND run_id = ANY(:run_ids::text[]) RETURNING 1
), pieces AS (
    DELETE FROM evidence WHERE tenant_id = :tenant_id AND run_id = ANY(:run_ids::text[]) RETURNING 1
), checkpoints AS (
    DELETE FROM checkpoint WHERE tenant_id = :tenant_id AND run_id = ANY(:run_ids::text[]) RETURNING 1
), events AS (
    DELETE FROM event WHERE tenant_id = :tenant_id AND run_id = ANY(:run_ids::text[]) RETURNING events AS number
), runs AS (
    DELETE FROM run WHERE tenant_id = :tenant_id AND id = ANY(:run_ids::text[]) RETURNING 1
)
SELECT 'operation_keys' AS record, count(*) AS count FROM operation_keys
UNION ALL SELECT 'steps', count(*) FROM steps
UNION ALL SELECT 'actions', count(*) FROM actions
UNION ALL SELECT 'evidence', count(*) FROM pieces
UNION ALL SELECT 'checkpoints', count(*) FROM checkpoints
UNION ALL SELECT 'events', coalesce(sum(number), 0)::bigint FROM events
UNION ALL SELECT 'runs', count(*) FROM runs

-- name: prunable_conversations
-- Old conversations without runs; no run begins in them meanwhile.
SELECT conversation.id FROM conversation
WHERE conversation.tenant_id = :tenant_id AND conversation.updated_at < :ended_before AND NOT EXISTS (
    SELECT 1 FROM run WHERE run.tenant_id = conversation.tenant_id AND run.conversation_id = conversation.id
)
ORDER BY conversation.id LIMIT :limit FOR UPDATE OF conversation SKIP LOCKED

-- name: prune_conversations
-- Those that still have none, with their messages. Guard: prunable_conversations has locked them in this transaction.
WITH emptied AS (
    SELECT conversation.id FROM conversation
    WHERE conversation.tenant_id = :tenant_id AND conversation.id = ANY(:conversation_ids::text[]) AND NOT EXISTS (
        SELECT 1 FROM run WHERE run.tenant_id = conversation.tenant_id AND run.conversation_id = conversation.id
    )
), messages AS (
    DELETE FROM message USING emptied
    WHERE message.tenant_id = :tenant_id AND message.conversation_id = emptied.id RETURNING 1
), conversations AS (
    DELETE FROM conversation USING emptied
    WHERE conversation.tenant_id = :tenant_id AND conversation.id = emptied.id RETURNING 1
)
SELECT 'messages' AS record, count(*) AS count FROM messages
UNION ALL SELECT 'conversations', count(*) FROM conversations

-- name: prune_rest
-- What no run is left for, and old requests, as (record, count): blobs of runs that are gone, unless a step that is left
-- sends them; request and transient blobs that are old enough, unless a step needs them that is open, in doubt, to be
-- looked up again, asked about, perhaps to be undone, or changed since; marks that nobody has renewed for so long, less what
-- is perhaps still to be undone (whoever undoes it drops it); announcements of questions that are gone; sessions that ended
-- so long ago.
WITH blobs AS (
    DELETE FROM blob
    WHERE blob.tenant_id = :tenant_id AND ((
            blob.run_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = blob.tenant_id AND run.id = blob.run_id)
            AND blob.ref NOT IN (
                SELECT input_ref FROM step WHERE step.tenant_id = :tenant_id AND input_ref IS NOT NULL
            )
        ) OR (
            blob.retention IN ('request', 'transient') AND blob.updated_at < :blobs_before
            AND blob.ref NOT IN (
                SELECT input_ref FROM step
                WHERE step.tenant_id = :tenant_id AND input_ref IS NOT NULL AND (
                    status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL OR step.updated_at >= :blobs_before
                    OR EXISTS (
                        SELECT 1 FROM pending_action
                        WHERE pending_action.tenant_id = step.tenant_id AND pending_action.run_id = step.run_id
                            AND pending_action.status = 'waiting' AND pending_action.step_id = step.id
                    )
                    OR run_id IN (SELECT mark.value FROM mark WHERE mark.tenant_id = :tenant_id AND mark.kind = 'undo')
                )
            )
        ))
    RETURNING 1
), marks AS (
    DELETE FROM mark
    WHERE tenant_id = :tenant_id AND updated_at < :ended_before AND kind NOT IN ('undo', 'undone') AND NOT (
        kind = 'not_undone' AND value IN (SELECT run.id FROM run WHERE run.tenant_id = :tenant_id)
    )
    RETURNING 1
), announcements AS (
    DELETE FROM announcement
    WHERE announcement.tenant_id = :tenant_id AND NOT EXISTS (
        SELECT 1 FROM pending_action
        WHERE pending_action.tenant_id = announcement.tenant_id AND pending_action.id = announcement.action_id
    )
    RETURNING 1
), sessions AS (
    DELETE FROM credential
    WHERE tenant_id = :tenant_id AND kind = 'session' AND (expires_at < :ended_before OR revoked_at < :ended_before)
    RETURNING 1
)
SELECT 'blobs' AS record, count(*) AS count FROM blobs
UNION ALL SELECT 'marks', count(*) FROM marks
UNION ALL SELECT 'announcements', count(*) FROM announcements
UNION ALL SELECT 'sessions', count(*) FROM sessions
