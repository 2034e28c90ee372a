-- All SQL of the SQLite store. Each query has a comment of what it is for and, where it writes, of its guard.
-- Wide rows are bound by position (twice as fast), everything else by name. Every transaction that writes is BEGIN
-- IMMEDIATE, so what it has read cannot change before it commits. A step's key is its run and its sequence; its id is made
-- of both, so the sequence is what stands in it behind the run's name.

-- Opening -------------------------------------------------------------------------------------------------------------

-- name: pragma_busy_timeout
-- Milliseconds inside SQLite, on the event loop's thread: short. Longer waits go through the clock door.
PRAGMA busy_timeout = 10

-- name: pragma_schema_version
-- Another number after each change of the schema, by whatever process.
PRAGMA schema_version

-- name: pragma_application_id
-- Whose file it is: 1937073766 is ours ("suf" and a version byte), 0 is nobody's.
PRAGMA application_id

-- name: pragma_set_application_id
-- Marks the file as ours, in the transaction of the first migration.
PRAGMA application_id = 1937073766

-- name: pragma_auto_vacuum
-- Before the first page is written: lets prune give pages back without rewriting the file.
PRAGMA auto_vacuum = INCREMENTAL

-- name: pragma_journal_mode
-- Readers do not wait for the writer; answers with the mode that is in force.
PRAGMA journal_mode = WAL

-- name: pragma_synchronous
-- A committed key survives power loss: every commit waits for the disk.
PRAGMA synchronous = FULL

-- name: pragma_fullfsync
-- macOS: fsync alone does not reach the medium.
PRAGMA fullfsync = ON

-- name: pragma_checkpoint_fullfsync
-- macOS: the same for checkpoints.
PRAGMA checkpoint_fullfsync = ON

-- name: pragma_wal_autocheckpoint
-- Off: a checkpoint inside a commit would add its syncs to that commit. checkpoint.py chooses the moment.
PRAGMA wal_autocheckpoint = 0

-- name: pragma_cache_size
-- 16 MiB.
PRAGMA cache_size = -16384

-- name: pragma_cell_size_check
-- Damaged pages are noticed when they are read.
PRAGMA cell_size_check = ON

-- name: pragma_trusted_schema
-- A schema that somebody tampered with calls no functions.
PRAGMA trusted_schema = OFF

-- name: pragma_secure_delete
-- Pruned bytes are overwritten where that costs no further write; the default differs between builds.
PRAGMA secure_delete = FAST

-- name: count_tables
-- Whether a file without our mark is empty.
SELECT count(*) AS count FROM sqlite_schema

-- name: create_schema_migration
-- The list of what was applied, before the first migration.
CREATE TABLE IF NOT EXISTS schema_migration (
    version INTEGER NOT NULL UNIQUE,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL GENERATED ALWAYS AS (created_at) VIRTUAL
) STRICT

-- name: has_schema_migration
-- Whether the list exists.
SELECT count(*) AS count FROM sqlite_schema WHERE name = 'schema_migration'

-- name: schema_migrations
-- What was applied.
SELECT version, name, checksum FROM schema_migration ORDER BY version

-- name: schema_migration_put
-- One migration was applied; in its own transaction.
INSERT INTO schema_migration (version, name, checksum, created_at) VALUES (:version, :name, :checksum, :wall)

-- name: meta_get
-- One setting of the file.
SELECT value FROM meta WHERE key = :key

-- name: meta_put
-- Sets it.
INSERT INTO meta (key, value, created_at, updated_at) VALUES (:key, :value, :wall, :wall)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at

-- Another boot: one transaction of these, guarded by meta.boot_id ----------------------------------------------------------

-- name: boot_leases
-- All leases are over: every process of the other boot is gone.
UPDATE run SET lease_owner = NULL, lease_until = 0.0 WHERE lease_owner IS NOT NULL OR lease_until > 0.0

-- name: boot_runs
-- What was waited for by the old clock is due now.
UPDATE run SET ready_at = :now WHERE ready_at IS NOT NULL

-- name: boot_run_starts
-- The age of a run under way, by the wall clock.
UPDATE run SET started_mono = :now - max(0.0, :wall - started_wall)
WHERE status <> 'completed' AND status <> 'failed' AND status <> 'cancelled'

-- name: boot_tried
-- The open steps that were tried: those behind what their run has committed, and those that are in doubt or looked up again.
SELECT step.tenant_id, step.id, step.run_id, step.sequence, step.attempt, step.attempts FROM run
CROSS JOIN step ON step.tenant_id = run.tenant_id AND step.run_id = run.id AND step.sequence > run.last_committed_sequence
    AND step.status NOT IN ('succeeded', 'failed') AND step.doubt_since IS NULL AND step.look_at IS NULL
WHERE run.last_committed_sequence < run.step_count AND step.attempt > 0
UNION ALL
SELECT tenant_id, id, run_id, sequence, attempt, attempts FROM step INDEXED BY step_late
WHERE (doubt_since IS NOT NULL OR look_at IS NOT NULL) AND attempt > 0

-- name: boot_attempts
-- Their attempts, in this boot's time.
UPDATE step SET attempts = :attempts WHERE tenant_id = :tenant_id AND run_id = :run_id AND sequence = :sequence

-- name: boot_steps
-- Back-off of open work is over now.
UPDATE step SET not_before = :now
WHERE not_before > 0.0 AND (tenant_id, run_id, sequence) IN (
    SELECT step.tenant_id, step.run_id, step.sequence FROM run
    CROSS JOIN step ON step.tenant_id = run.tenant_id AND step.run_id = run.id
        AND step.sequence > run.last_committed_sequence
    WHERE run.last_committed_sequence < run.step_count
)

-- name: boot_looks
-- Looks are due now; how long a doubt lasts is counted from now.
UPDATE step INDEXED BY step_late SET
    look_at = CASE WHEN look_at IS NULL THEN NULL ELSE :now END,
    doubt_since = CASE WHEN doubt_since IS NULL THEN NULL ELSE :now END
WHERE doubt_since IS NOT NULL OR look_at IS NOT NULL

-- name: boot_throttles
-- Tokens of the other boot's time are over.
UPDATE throttle SET next_at = min(next_at, :now)

-- name: boot_throttle_shares
-- So are the calls that were under way then.
DELETE FROM throttle_share

-- name: boot_workers
-- Workers of other boots are gone, with their locks.
DELETE FROM worker WHERE boot_id <> :boot_id

-- Transactions --------------------------------------------------------------------------------------------------------

-- name: begin
-- The writer's transaction: the write lock is taken first.
BEGIN IMMEDIATE

-- name: begin_read
-- One state of the file for several reads.
BEGIN

-- name: commit
-- Durable when it returns.
COMMIT

-- name: rollback
-- Nothing happened.
ROLLBACK

-- name: savepoint
-- One append of a batch that has to be replayed one by one.
SAVEPOINT one

-- name: savepoint_undo
-- That append alone wrote nothing.
ROLLBACK TO one

-- name: savepoint_release
-- That append is part of the transaction.
RELEASE one

-- name: data_version
-- Changes when another connection has committed.
PRAGMA data_version

-- name: checkpoint
-- Copies the log into the file without waiting for anybody; answers (busy, frames in the log, frames copied).
PRAGMA wal_checkpoint(PASSIVE)

-- Appending -----------------------------------------------------------------------------------------------------------

-- name: append_guard
-- The guard of an append that leaves the run's state as it is, and the run's counters. It must change one row: the version
-- is the one that was decided on; a token, where given, is the row's; the lease is not over where one is needed (else
-- -1e308 stands in) and the run is not terminal; the wall time is before the expiry where there is one.
-- Three statuses are compared one by one, here and in the indexes: SQLite makes a table of a longer list, for each row.
UPDATE run SET
    version = ?, event_sequence = ?, step_count = ?, next_position = ?, turns = ?, input_tokens = ?, output_tokens = ?,
    cost_microdollars = ?, result_step_id = ?, queued = ?,
    last_committed_sequence = ?, updated_at = ?
WHERE tenant_id = ? AND id = ? AND version = ?
    AND lease_token = coalesce(?, lease_token)
    AND lease_until > ?
    AND (? = 0 OR (status <> 'completed' AND status <> 'failed' AND status <> 'cancelled'))
    AND coalesce(?, 1e308) > ?

-- name: append_guard_state
-- The same for an append that changes the run's state, ends its lease or gives its result: the only query that changes a
-- run's status. One statement, since each would write the row and its indexes again.
UPDATE run SET
    version = ?, event_sequence = ?, step_count = ?, next_position = ?, turns = ?, input_tokens = ?, output_tokens = ?,
    cost_microdollars = ?, result_step_id = ?, queued = ?,
    last_committed_sequence = ?, updated_at = ?,
    status = ?, error_code = ?, ready_at = ?, wake_at = ?, agent_version = ?, limits = ?, signals = ?,
    result = coalesce(?, result),
    lease_owner = CASE WHEN ? THEN NULL ELSE lease_owner END, lease_until = CASE WHEN ? THEN 0.0 ELSE lease_until END
WHERE tenant_id = ? AND id = ? AND version = ?
    AND lease_token = coalesce(?, lease_token)
    AND lease_until > ?
    AND (? = 0 OR (status <> 'completed' AND status <> 'failed' AND status <> 'cancelled'))
    AND coalesce(?, 1e308) > ?

-- name: guard_facts
-- Which part of the guard failed.
SELECT version, status, lease_token, lease_until FROM run WHERE tenant_id = :tenant_id AND id = :run_id

-- name: run_insert
-- A new run. Guard: create has looked at its start key, its conversation and its caller in this transaction.
INSERT INTO run (
    tenant_id, id, conversation_id, agent, agent_version, kind, status, version, event_sequence, step_count,
    next_position, turns, last_committed_sequence, started_mono, started_wall, limits, queued, error_code, ready_at,
    wake_at, lease_owner, lease_token, lease_until, start_key, start_hash, created_by, metadata, signals,
    parent_step_id, parent_run_id, created_at, updated_at, result, priority
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: run_by_start_key
-- The run that was made first under a start key.
SELECT id, start_hash FROM run WHERE tenant_id = :tenant_id AND start_key = :start_key

-- name: run_exists
-- Whether there is such a run.
SELECT count(*) AS count FROM run WHERE tenant_id = :tenant_id AND id = :run_id

-- name: conversation_insert
-- A new conversation.
INSERT INTO conversation (tenant_id, id, next_position, created_at, updated_at) VALUES (?, ?, ?, ?, ?)

-- name: conversation_position
-- The next free position, once a run has ended. It only grows.
UPDATE conversation SET next_position = max(next_position, ?), updated_at = ? WHERE tenant_id = ? AND id = ?

-- name: conversation_facts
-- The next free position and the run under way.
SELECT coalesce(run.next_position, conversation.next_position) AS next_position, run.id AS run_id
FROM conversation
LEFT JOIN run ON run.tenant_id = conversation.tenant_id AND run.conversation_id = conversation.id
    AND run.status <> 'completed' AND run.status <> 'failed' AND run.status <> 'cancelled'
WHERE conversation.tenant_id = :tenant_id AND conversation.id = :conversation_id

-- name: step_insert
-- A new step.
INSERT INTO step (
    status, rules, tool_name, tool_version, call_id, position, operation_key, input_hash, input_ref, target, credential,
    account, owner_step_id, action_id, external_resource_id, resource_url, resolution, error_code, purpose, attempt,
    not_before, doubt_since, look_at, looks, sweep, person_absent, answered, receipts, attempts, safe_input, safe_output,
    updated_at, tenant_id, id, run_id, conversation_id, sequence, type, identity_hash, created_at
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)

-- name: step_update
-- The only query that changes a step's status. Guard: the run's append_guard. The key is not touched, so that its index
-- stays as it is; views that are not given stay.
UPDATE step SET
    status = ?, rules = ?, tool_name = ?, tool_version = ?, call_id = ?, position = ?, operation_key = ?, input_hash = ?,
    input_ref = ?, target = ?, credential = ?, account = ?, owner_step_id = ?, action_id = ?, external_resource_id = ?,
    resource_url = ?, resolution = ?, error_code = ?, purpose = ?, attempt = ?, not_before = ?, doubt_since = ?, look_at = ?,
    looks = ?, sweep = ?, person_absent = ?, answered = ?, receipts = ?, attempts = ?, safe_input = coalesce(?, safe_input),
    safe_output = coalesce(?, safe_output), updated_at = ?
WHERE tenant_id = ? AND run_id = ? AND sequence = ?

-- name: step_view
-- Views of a step that did not change. Guard: the run's append_guard.
UPDATE step SET safe_input = coalesce(?, safe_input), safe_output = coalesce(?, safe_output), updated_at = ?
WHERE tenant_id = ? AND run_id = ? AND sequence = ?

-- name: action_insert
-- A question to a person.
INSERT INTO pending_action (
    status, why, expires_at, decision, decided_by, decided_at, decided_from, decision_key, reason, answer, updated_at,
    tenant_id, id, run_id, step_id, kind, input_hash, permission, arguments, preview, created_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: action_update
-- Its decision or its end. Guard: the run's append_guard.
UPDATE pending_action SET
    status = ?, why = ?, expires_at = ?, decision = ?, decided_by = ?, decided_at = coalesce(decided_at, ?),
    decided_from = ?, decision_key = ?, reason = coalesce(?, reason), answer = coalesce(?, answer), updated_at = ?
WHERE tenant_id = ? AND id = ?

-- name: message_insert
-- A message, at its place or waiting for one (position NULL). The unique keys refuse a taken place and a second result.
INSERT INTO message (tenant_id, id, conversation_id, run_id, step_id, call_id, position, role, body, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: message_place
-- A waiting message gets its place. It must change one row: the message waits in this conversation.
UPDATE message SET position = ?, run_id = ?, step_id = ?, call_id = ?, updated_at = ?
WHERE tenant_id = ? AND id = ? AND conversation_id = ? AND position IS NULL

-- name: evidence_insert
-- One row of evidence.
INSERT INTO evidence (tenant_id, run_id, step_id, attempt, verdict, source, reason, resource_id, resource_url, detail, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: event_insert
-- The events of one append; the unique key refuses a sequence that exists.
INSERT INTO event (tenant_id, run_id, sequence, events, version, type, at_mono, format, data, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: blob_put
-- Bytes by content: the same bytes twice are one blob, which lives as long as its last use.
INSERT INTO blob (tenant_id, ref, data, retention, run_id, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, ref) DO UPDATE SET
    updated_at = excluded.updated_at,
    retention = CASE WHEN blob.retention = excluded.retention THEN blob.retention ELSE 'shared' END,
    run_id = CASE WHEN blob.run_id = excluded.run_id THEN blob.run_id END

-- name: blob_drop_transient
-- What was kept for a run only until its batch is answered, such as signed reasoning.
DELETE FROM blob WHERE tenant_id = ? AND run_id = ? AND retention = 'transient'

-- name: operation_key_claim
-- A step takes a business key. It must change one row: nobody holds the key, or this step does, or a step that failed. Of
-- the latter nothing may have been found since, unless the last question about that was to have it undone, and no mark says
-- that it is not yet (+arrival: by its index the questions of all runs would be read).
INSERT INTO operation_key (tenant_id, operation_key, run_id, step_id, input_hash, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, operation_key) DO UPDATE SET
    run_id = excluded.run_id, step_id = excluded.step_id, input_hash = excluded.input_hash, updated_at = excluded.updated_at
WHERE operation_key.step_id = excluded.step_id OR EXISTS (
    SELECT 1 FROM step
    WHERE step.tenant_id = operation_key.tenant_id AND step.run_id = operation_key.run_id
        AND step.sequence = CAST(substr(operation_key.step_id, length(operation_key.run_id) + 3) AS INTEGER) AND step.status = 'failed'
        AND coalesce((
            SELECT asked.status = 'approved' AND NOT EXISTS (
                SELECT 1 FROM mark
                WHERE mark.tenant_id = asked.tenant_id AND mark.kind IN ('undo', 'not_undone') AND mark.name = asked.id
            ) FROM pending_action AS asked
            WHERE asked.tenant_id = step.tenant_id AND asked.run_id = step.run_id AND asked.step_id = step.id
                AND asked.kind = 'duplicate'
            ORDER BY +asked.arrival DESC LIMIT 1
        ), step.receipts = '[]')
)

-- Leases --------------------------------------------------------------------------------------------------------------

-- name: claimable_ready
-- Free runs that are ready, longest first. Free: nobody's, or the lease is over (a dead owner's lease ends with the proof).
-- A performed call is for who knows its tool.
SELECT id, ready_at AS since FROM run
WHERE tenant_id = :tenant_id AND ready_at <= :now AND priority = 0 AND blocked_code IS NULL
    AND (lease_owner IS NULL OR lease_until <= :now)
    AND EXISTS (
        SELECT 1 FROM json_each(:agents) AS known
        WHERE (run.kind <> 'perform' AND known.key = run.agent AND known.value = run.agent_version)
            OR (run.kind = 'perform' AND known.key = 'perform:' || run.agent)
    )
ORDER BY ready_at LIMIT :limit

-- name: claimable_other
-- The same for runs with a priority, each step of which is worth a minute of waiting.
SELECT id, ready_at - 60.0 * priority AS since FROM run INDEXED BY run_ready_other
WHERE tenant_id = :tenant_id AND ready_at <= :now AND priority <> 0 AND blocked_code IS NULL
    AND (lease_owner IS NULL OR lease_until <= :now)
    AND EXISTS (
        SELECT 1 FROM json_each(:agents) AS known
        WHERE (run.kind <> 'perform' AND known.key = run.agent AND known.value = run.agent_version)
            OR (run.kind = 'perform' AND known.key = 'perform:' || run.agent)
    )
ORDER BY since LIMIT :limit

-- name: claimable_awake
-- The same for runs with a question that has expired.
SELECT id FROM run
WHERE tenant_id = :tenant_id AND wake_at <= :wall AND blocked_code IS NULL
    AND (lease_owner IS NULL OR lease_until <= :now)
    AND EXISTS (
        SELECT 1 FROM json_each(:agents) AS known
        WHERE (run.kind <> 'perform' AND known.key = run.agent AND known.value = run.agent_version)
            OR (run.kind = 'perform' AND known.key = 'perform:' || run.agent)
    )
ORDER BY wake_at - 60.0 * priority LIMIT :limit

-- name: lease_facts
-- Who has the lease, and whether that process is proven dead.
SELECT run.lease_owner, run.lease_token, run.lease_until, run.blocked_code, worker.dead_at
FROM run LEFT JOIN worker ON worker.id = run.lease_owner
WHERE run.tenant_id = :tenant_id AND run.id = :run_id

-- name: lease_take
-- Takes a lease. It must change one row: the run is still free.
UPDATE run SET lease_owner = :owner, lease_token = lease_token + 1, lease_until = :until, blocked_code = NULL
WHERE tenant_id = :tenant_id AND id = :run_id AND (lease_owner IS NULL OR lease_until <= :now)

-- name: lease_list
-- The leases of one worker of this process.
SELECT id, lease_token FROM run INDEXED BY run_leased
WHERE tenant_id = :tenant_id AND lease_owner = :owner

-- name: lease_renew
-- Lengthens a lease. It must change one row: the token is ours and the lease is not over.
UPDATE run SET lease_until = :until
WHERE tenant_id = :tenant_id AND id = :run_id AND lease_token = :token AND lease_owner IS NOT NULL AND lease_until > :now

-- name: lease_release
-- Gives a lease back. Guard: the token is ours.
UPDATE run SET lease_owner = NULL, lease_until = 0.0
WHERE tenant_id = :tenant_id AND id = :run_id AND lease_token = :token AND lease_owner IS NOT NULL

-- name: block
-- Notes why no worker can take the run. Guard: the token is ours, where one is given.
UPDATE run SET blocked_code = :code
WHERE tenant_id = :tenant_id AND id = :run_id AND lease_token = coalesce(:token, lease_token)

-- name: unblock
-- Blocked runs may be looked at again.
UPDATE run SET blocked_code = NULL WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL

-- name: next_ready
-- The earliest boot time at which a free run is ready.
SELECT ready_at AS at FROM run
WHERE tenant_id = :tenant_id AND ready_at IS NOT NULL AND blocked_code IS NULL
    AND (lease_owner IS NULL OR lease_until <= :now)
    AND (:agents IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:agents) AS known
        WHERE (run.kind <> 'perform' AND known.key = run.agent AND known.value = run.agent_version)
            OR (run.kind = 'perform' AND known.key = 'perform:' || run.agent)
    ))
ORDER BY ready_at LIMIT 1

-- name: next_lease_end
-- The earliest boot time at which a leased run with something to do becomes free.
SELECT min(max(lease_until, coalesce(ready_at, 0.0))) AS at FROM run INDEXED BY run_leased
WHERE lease_owner IS NOT NULL AND lease_until > :now AND tenant_id = :tenant_id AND blocked_code IS NULL
    AND (ready_at IS NOT NULL OR wake_at IS NOT NULL)
    AND (:agents IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:agents) AS known
        WHERE (run.kind <> 'perform' AND known.key = run.agent AND known.value = run.agent_version)
            OR (run.kind = 'perform' AND known.key = 'perform:' || run.agent)
    ))

-- name: next_awake
-- The earliest wall time at which a free run's question expires.
SELECT wake_at AS at FROM run
WHERE tenant_id = :tenant_id AND wake_at IS NOT NULL AND blocked_code IS NULL
    AND (lease_owner IS NULL OR lease_until <= :now)
    AND (:agents IS NULL OR EXISTS (
        SELECT 1 FROM json_each(:agents) AS known
        WHERE (run.kind <> 'perform' AND known.key = run.agent AND known.value = run.agent_version)
            OR (run.kind = 'perform' AND known.key = 'perform:' || run.agent)
    ))
ORDER BY wake_at LIMIT 1

-- Throttles -----------------------------------------------------------------------------------------------------------

-- name: throttle_put
-- A throttle that nobody has asked about before. Its first token is free.
INSERT INTO throttle (tenant_id, name, next_at, created_at, updated_at) VALUES (:tenant_id, :name, :now, :wall, :wall)
ON CONFLICT (tenant_id, name) DO NOTHING

-- name: throttle_facts
-- The next token, and the calls at once that other workers have. In the transaction that takes some of them.
SELECT next_at, coalesce((
    SELECT sum(slots) FROM throttle_share AS share
    WHERE share.tenant_id = throttle.tenant_id AND share.name = throttle.name AND share.worker_id <> :worker_id
        AND share.held_until > :now
), 0) AS taken
FROM throttle WHERE tenant_id = :tenant_id AND name = :name

-- name: throttle_next
-- Tokens were taken. Guard: throttle_facts in this transaction.
UPDATE throttle SET next_at = :next_at, updated_at = :wall WHERE tenant_id = :tenant_id AND name = :name

-- name: throttle_share_put
-- What a worker may have under way. Guard: throttle_facts in this transaction.
INSERT INTO throttle_share (tenant_id, name, worker_id, slots, held_until, created_at, updated_at)
VALUES (:tenant_id, :name, :worker_id, :slots, :until, :wall, :wall)
ON CONFLICT (tenant_id, name, worker_id) DO UPDATE SET
    slots = excluded.slots, held_until = excluded.held_until, updated_at = excluded.updated_at

-- name: throttle_shares_over
-- Shares that are over or empty.
DELETE FROM throttle_share WHERE tenant_id = :tenant_id AND name = :name AND (held_until <= :now OR slots = 0)

-- Schedules ------------------------------------------------------------------------------------------------------------

-- name: schedule_put
-- Up to where the due times of a schedule were dealt with. The last writer counts: a start key makes each of them one run.
INSERT INTO schedule (tenant_id, name, seen_until, created_at, updated_at) VALUES (:tenant_id, :name, :until, :wall, :wall)
ON CONFLICT (tenant_id, name) DO UPDATE SET seen_until = excluded.seen_until, updated_at = excluded.updated_at

-- name: schedule_seen
-- Up to where they were.
SELECT seen_until FROM schedule WHERE tenant_id = :tenant_id AND name = :name

-- Workers -------------------------------------------------------------------------------------------------------------

-- name: worker_put
-- A process that takes leases; written with the first lease that it takes.
INSERT INTO worker (id, host, boot_id, pid, lock_name, takes, started_at, created_at, updated_at)
VALUES (:id, :host, :boot_id, :pid, :lock_name, :takes, :now, :wall, :wall)
ON CONFLICT (id) DO NOTHING

-- name: worker_owners
-- Owners of leases whose death could be proven on this machine.
SELECT worker.id, worker.lock_name FROM worker
WHERE worker.host = :host AND worker.boot_id = :boot_id AND worker.dead_at IS NULL
    AND EXISTS (SELECT 1 FROM run WHERE run.lease_owner = worker.id)

-- name: worker_all
-- The same with workers that hold no lease.
SELECT id, lock_name FROM worker WHERE host = :host AND boot_id = :boot_id AND dead_at IS NULL

-- name: workers_take
-- What workers take that are not known to be dead.
SELECT lock_name, takes FROM worker WHERE dead_at IS NULL AND takes IS NOT NULL

-- name: worker_dead
-- A worker's lock is free: all its processes are gone. Guard: not noted before.
UPDATE worker SET dead_at = :now, updated_at = :wall WHERE id = :id AND dead_at IS NULL

-- name: worker_leases_over
-- The leases of a dead worker end at once.
UPDATE run SET lease_until = min(lease_until, :now) WHERE lease_owner = :id

-- name: worker_forget
-- Dead workers that hold no lease any more; their lock files can go.
DELETE FROM worker
WHERE dead_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM run WHERE run.lease_owner = worker.id)
RETURNING lock_name

-- name: worker_remove
-- A worker that stopped cleanly. Guard: it holds no lease.
DELETE FROM worker WHERE id = :id AND NOT EXISTS (SELECT 1 FROM run WHERE run.lease_owner = :id)

-- name: worker_holds_lease
-- Whether a worker still holds a lease.
SELECT count(*) AS count FROM run WHERE lease_owner = :id

-- Reading -------------------------------------------------------------------------------------------------------------

-- name: run_get
-- One run.
SELECT * FROM run WHERE tenant_id = :tenant_id AND id = :run_id

-- name: runs_of_parent
-- The runs that work on calls of this one, oldest first.
SELECT * FROM run INDEXED BY run_children WHERE tenant_id = :tenant_id AND parent_run_id = :run_id ORDER BY id

-- name: runs_list
-- Runs, newest first.
SELECT * FROM run
WHERE tenant_id = :tenant_id AND (:before IS NULL OR id < :before)
    AND (:status IS NULL OR status = :status) AND (:agent IS NULL OR agent = :agent)
ORDER BY id DESC LIMIT :limit

-- name: runs_list_open
-- The same of a status that is no end: only runs under way are read.
SELECT * FROM run INDEXED BY run_under_way
WHERE tenant_id = :tenant_id AND status <> 'completed' AND status <> 'failed' AND status <> 'cancelled'
    AND status = :status AND (:before IS NULL OR id < :before) AND (:agent IS NULL OR agent = :agent)
ORDER BY id DESC LIMIT :limit

-- name: run_versions
-- The versions of some runs.
SELECT id, version FROM run
WHERE tenant_id = :tenant_id AND id IN (SELECT value FROM json_each(:run_ids))

-- name: run_ids
-- All runs, oldest first.
SELECT id FROM run WHERE tenant_id = :tenant_id ORDER BY id

-- name: steps_live
-- The live steps of a run, however long it is: of those behind what it has committed the ones that have not ended, and all
-- that are in doubt or looked up again.
SELECT * FROM step
WHERE tenant_id = :tenant_id AND run_id = :run_id AND sequence > (
        SELECT last_committed_sequence FROM run WHERE tenant_id = :tenant_id AND id = :run_id
    ) AND status NOT IN ('succeeded', 'failed') AND doubt_since IS NULL AND look_at IS NULL
UNION ALL
SELECT * FROM step INDEXED BY step_late
WHERE tenant_id = :tenant_id AND run_id = :run_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
    AND (status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL)
ORDER BY sequence

-- name: steps_asked
-- Closed steps of a run about which a person is asked: a run in memory keeps them too.
SELECT * FROM step
WHERE tenant_id = :tenant_id AND run_id = :run_id AND status IN ('succeeded', 'failed') AND look_at IS NULL AND sequence IN (
    SELECT CAST(substr(pending_action.step_id, length(pending_action.run_id) + 3) AS INTEGER) FROM pending_action
    WHERE pending_action.tenant_id = :tenant_id AND pending_action.run_id = :run_id
        AND pending_action.status = 'waiting'
)

-- name: steps_all
-- All steps of a run. `told`, here and in all queries that show a step: the result that the model was told, where the
-- view of the output is that.
SELECT *, CASE WHEN safe_output = '' THEN (
    SELECT body FROM message
    WHERE message.tenant_id = step.tenant_id AND message.call_id = step.call_id AND message.role = 'tool_result'
) END AS told
FROM step WHERE tenant_id = :tenant_id AND run_id = :run_id ORDER BY sequence

-- name: step_get
-- One step.
SELECT *, CASE WHEN safe_output = '' THEN (
    SELECT body FROM message
    WHERE message.tenant_id = step.tenant_id AND message.call_id = step.call_id AND message.role = 'tool_result'
) END AS told
FROM step WHERE tenant_id = :tenant_id AND run_id = :run_id AND sequence = :sequence AND id = :step_id

-- name: step_by_operation_key
-- The step that owns a key: the holder of a business key, else the step whose id the key ends with.
SELECT step.*, CASE WHEN safe_output = '' THEN (
    SELECT body FROM message
    WHERE message.tenant_id = step.tenant_id AND message.call_id = step.call_id AND message.role = 'tool_result'
) END AS told
FROM (
    SELECT run_id, step_id FROM operation_key WHERE tenant_id = :tenant_id AND operation_key = :operation_key
    UNION ALL SELECT :run_id, :step_id
    LIMIT 1
) AS owner
CROSS JOIN step ON step.tenant_id = :tenant_id AND step.run_id = owner.run_id
    AND step.sequence = CAST(substr(owner.step_id, length(owner.run_id) + 3) AS INTEGER) AND step.id = owner.step_id
WHERE coalesce(step.operation_key, step.run_id || ':' || step.id) = :operation_key

-- name: step_same_action
-- The newest step of a conversation with this identity that has acted or may have. What was found of one that had failed
-- has an id, or a question about it alone.
SELECT *, CASE WHEN safe_output = '' THEN (
    SELECT body FROM message
    WHERE message.tenant_id = step.tenant_id AND message.call_id = step.call_id AND message.role = 'tool_result'
) END AS told
FROM step
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND identity_hash = :identity_hash
    AND (status IN ('succeeded', 'running', 'outcome_unknown') OR (status = 'failed' AND (receipts <> '[]' OR EXISTS (
        SELECT 1 FROM pending_action AS asked
        WHERE asked.tenant_id = step.tenant_id AND asked.run_id = step.run_id AND asked.step_id = step.id
            AND asked.kind = 'duplicate'
    ))))
ORDER BY id DESC LIMIT 1

-- name: steps_acted
-- The calls of a conversation that change something outside: only they have an identity, and an index by it.
SELECT *, CASE WHEN safe_output = '' THEN (
    SELECT body FROM message
    WHERE message.tenant_id = step.tenant_id AND message.call_id = step.call_id AND message.role = 'tool_result'
) END AS told
FROM step INDEXED BY step_same_action
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND identity_hash IS NOT NULL
ORDER BY id

-- name: key_owner
-- Who holds a business key.
SELECT run_id, step_id, input_hash FROM operation_key WHERE tenant_id = :tenant_id AND operation_key = :operation_key

-- name: evidence_of_run
-- All evidence of a run, oldest first.
SELECT * FROM evidence WHERE tenant_id = :tenant_id AND run_id = :run_id ORDER BY arrival

-- name: actions_waiting
-- Open questions of a run.
SELECT * FROM pending_action
WHERE tenant_id = :tenant_id AND run_id = :run_id AND status = 'waiting' ORDER BY arrival

-- name: action_approved
-- The approval that a step runs under.
SELECT * FROM pending_action
WHERE tenant_id = :tenant_id AND run_id = :run_id AND id = :action_id AND status = 'approved'

-- name: actions_of_step
-- All actions of one step.
SELECT * FROM pending_action WHERE tenant_id = :tenant_id AND run_id = :run_id AND step_id = :step_id

-- name: action_get
-- One action, with its tool.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = CAST(substr(pending_action.step_id, length(pending_action.run_id) + 3) AS INTEGER)
WHERE pending_action.tenant_id = :tenant_id AND pending_action.id = :action_id

-- name: actions_list
-- Actions of a tenant, oldest first. In the order of the rows (the + keeps from an index by tenant), so that a page is
-- read, not all actions there are, to sort them.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = CAST(substr(pending_action.step_id, length(pending_action.run_id) + 3) AS INTEGER)
WHERE +pending_action.tenant_id = :tenant_id AND (:status IS NULL OR pending_action.status = :status)
    AND pending_action.arrival > coalesce(
        (SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after), 0
    )
ORDER BY pending_action.arrival LIMIT :limit

-- name: actions_list_waiting
-- The inbox, oldest first.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = CAST(substr(pending_action.step_id, length(pending_action.run_id) + 3) AS INTEGER)
WHERE pending_action.tenant_id = :tenant_id AND pending_action.status = 'waiting'
    AND pending_action.arrival > coalesce(
        (SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after), 0
    )
ORDER BY pending_action.arrival LIMIT :limit

-- name: actions_of_run
-- Actions of a run, oldest first.
SELECT pending_action.*, step.tool_name FROM pending_action
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = CAST(substr(pending_action.step_id, length(pending_action.run_id) + 3) AS INTEGER)
WHERE pending_action.tenant_id = :tenant_id AND pending_action.run_id = :run_id
    AND (:status IS NULL OR pending_action.status = :status)
    AND pending_action.arrival > coalesce(
        (SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after), 0
    )
ORDER BY pending_action.arrival LIMIT :limit

-- name: actions_below_run
-- Actions of a run, and of the runs that work for it and for them, oldest first.
WITH RECURSIVE below (id) AS (
    SELECT :run_id
    UNION
    SELECT run.id FROM below CROSS JOIN run ON run.tenant_id = :tenant_id AND run.parent_run_id = below.id
)
SELECT pending_action.*, step.tool_name FROM below
CROSS JOIN pending_action ON pending_action.tenant_id = :tenant_id AND pending_action.run_id = below.id
LEFT JOIN step ON step.tenant_id = pending_action.tenant_id AND step.run_id = pending_action.run_id
    AND step.sequence = CAST(substr(pending_action.step_id, length(pending_action.run_id) + 3) AS INTEGER)
WHERE (:status IS NULL OR pending_action.status = :status)
    AND pending_action.arrival > coalesce(
        (SELECT arrival FROM pending_action WHERE tenant_id = :tenant_id AND id = :after), 0
    )
ORDER BY pending_action.arrival LIMIT :limit

-- name: events_after
-- Events of a run in order, as appends: all that hold one of the :limit events behind :after.
SELECT * FROM event
WHERE tenant_id = :tenant_id AND run_id = :run_id AND sequence > :after AND sequence <= coalesce((
    SELECT min(sequence) FROM event
    WHERE tenant_id = :tenant_id AND run_id = :run_id AND sequence >= :after + :limit
), 9223372036854775807)
ORDER BY sequence

-- name: messages_placed
-- The conversation in order.
SELECT * FROM message
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND position > :after ORDER BY position
LIMIT :limit

-- name: messages_queued
-- What waits for a place, in the order of arrival.
SELECT * FROM message
WHERE tenant_id = :tenant_id AND conversation_id = :conversation_id AND position IS NULL ORDER BY arrival

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
-- Whose tokens there are: a lookup across tenants.
SELECT DISTINCT tenant_id FROM credential WHERE kind = 'token' AND revoked_at IS NULL ORDER BY tenant_id

-- name: credential_revoke
-- The end of a token with its sessions, or of a session. Guard: it has not ended before.
UPDATE credential SET revoked_at = :wall, updated_at = :wall
WHERE tenant_id = :tenant_id AND (id = :id OR parent_id = :id) AND revoked_at IS NULL

-- name: announcements_due
-- The waiting actions that a hook is to be told of, oldest first: those behind :after that nobody has told it of, and those
-- to be tried again.
SELECT id, attempt FROM (
    SELECT * FROM (
        SELECT arrival, id, 1 AS attempt FROM pending_action INDEXED BY pending_action_waiting
        WHERE tenant_id = :tenant_id AND status = 'waiting' AND arrival > :after
            AND (expires_at IS NULL OR expires_at > :wall)
            AND NOT EXISTS (
                SELECT 1 FROM announcement
                WHERE announcement.tenant_id = :tenant_id AND action_id = pending_action.id AND hook = :hook
            )
        ORDER BY arrival LIMIT :limit
    )
    UNION ALL
    SELECT * FROM (
        SELECT pending_action.arrival, pending_action.id, announcement.attempts + 1
        FROM announcement INDEXED BY announcement_again CROSS JOIN pending_action
            ON pending_action.tenant_id = announcement.tenant_id AND pending_action.id = announcement.action_id
        WHERE announcement.tenant_id = :tenant_id AND announcement.hook = :hook AND announcement.next_at <= :wall
            AND announcement.attempts < :attempts_max AND pending_action.status = 'waiting'
            AND (pending_action.expires_at IS NULL OR pending_action.expires_at > :wall)
        ORDER BY announcement.next_at LIMIT :limit
    )
) ORDER BY arrival LIMIT :limit

-- name: announcements_over
-- What was to be tried again and needs it no longer is not looked at again.
UPDATE announcement INDEXED BY announcement_again SET next_at = NULL, updated_at = :wall
WHERE tenant_id = :tenant_id AND hook = :hook AND next_at <= :wall AND (
    attempts >= :attempts_max OR NOT EXISTS (
        SELECT 1 FROM pending_action
        WHERE pending_action.tenant_id = :tenant_id AND pending_action.id = announcement.action_id
            AND status = 'waiting' AND (expires_at IS NULL OR expires_at > :wall)
    )
)

-- name: newest_action
-- The place of the newest action of all tenants.
SELECT max(arrival) FROM pending_action

-- name: announcements_next
-- When the first of them is due; 0 where nobody has tried yet.
SELECT CASE WHEN EXISTS (
    SELECT 1 FROM pending_action INDEXED BY pending_action_waiting
    WHERE tenant_id = :tenant_id AND status = 'waiting' AND arrival > :after
        AND (expires_at IS NULL OR expires_at > :wall)
        AND NOT EXISTS (
            SELECT 1 FROM announcement
            WHERE announcement.tenant_id = :tenant_id AND action_id = pending_action.id AND hook = :hook
        )
) THEN 0.0 ELSE (
    SELECT announcement.next_at FROM announcement INDEXED BY announcement_again CROSS JOIN pending_action
        ON pending_action.tenant_id = announcement.tenant_id AND pending_action.id = announcement.action_id
    WHERE announcement.tenant_id = :tenant_id AND announcement.hook = :hook AND announcement.next_at IS NOT NULL
        AND announcement.attempts < :attempts_max AND pending_action.status = 'waiting'
        AND (pending_action.expires_at IS NULL OR pending_action.expires_at > :wall)
    ORDER BY announcement.next_at LIMIT 1
) END AS due

-- name: announcement_take
-- This process tries it now: no other does before :next_at. The transaction that has looked is the only writer.
INSERT INTO announcement (tenant_id, action_id, hook, attempts, next_at, outcome, created_at, updated_at)
VALUES (:tenant_id, :action_id, :hook, 1, :next_at, NULL, :wall, :wall)
ON CONFLICT (tenant_id, action_id, hook) DO UPDATE SET
    attempts = attempts + 1, next_at = excluded.next_at, updated_at = excluded.updated_at

-- name: announcement_done
-- How it went.
UPDATE announcement SET outcome = :outcome, next_at = :next_at, updated_at = :wall
WHERE tenant_id = :tenant_id AND action_id = :action_id AND hook = :hook

-- name: mark_put
-- A small fact by name; the last writer counts.
INSERT INTO mark (tenant_id, kind, name, value, created_at, updated_at)
VALUES (:tenant_id, :kind, :name, :value, :wall, :wall)
ON CONFLICT (tenant_id, kind, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at

-- name: mark_get
-- What is kept.
SELECT value FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name = :name

-- name: marks_of
-- The names of a kind, in their order, from behind :after on.
SELECT name FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name > :after ORDER BY name LIMIT :limit

-- name: mark_drop
-- It is of no use any more.
DELETE FROM mark WHERE tenant_id = :tenant_id AND kind = :kind AND name = :name

-- name: count_runs_open
-- Runs under way by status.
SELECT status AS name, count(*) AS count FROM run INDEXED BY run_under_way
WHERE tenant_id = :tenant_id AND status <> 'completed' AND status <> 'failed' AND status <> 'cancelled' GROUP BY status

-- name: count_runs_over
-- Runs that have ended by status; reads the index alone.
SELECT status AS name, count(*) AS count FROM run INDEXED BY run_over
WHERE tenant_id = :tenant_id AND (status = 'completed' OR status = 'failed' OR status = 'cancelled') GROUP BY status

-- name: runs_blocked
-- Runs that were set aside for one reason, by id. There are few; by their ids alone all runs would be read.
SELECT id FROM run INDEXED BY run_blocked
WHERE tenant_id = :tenant_id AND blocked_code = :code AND id > :after ORDER BY id LIMIT :limit

-- name: steps_unknown_at
-- Steps whose outcome is unknown at one target, by id. They are few beside all there ever were.
SELECT id FROM step INDEXED BY step_late
WHERE tenant_id = :tenant_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
    AND status = 'outcome_unknown' AND lower(target) = lower(:target)
ORDER BY id LIMIT :limit

-- name: steps_unlooked
-- Steps of these tools whose outcome is unknown and that are not looked up, by id, less those that were given up.
SELECT id FROM step INDEXED BY step_late
WHERE tenant_id = :tenant_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
    AND status = 'outcome_unknown' AND look_at IS NULL AND resolution IS NULL AND id > :after
    AND tool_name IN (SELECT value FROM json_each(:tools))
ORDER BY id LIMIT :limit

-- name: calls_untold
-- Calls that wait for a run which has ended, though their next look at it is still to come: nobody has told them. From the
-- callers that have something due by :until, which is as late as such a look can be.
SELECT step.id FROM run AS caller INDEXED BY run_ready
CROSS JOIN run AS child INDEXED BY run_children ON child.tenant_id = caller.tenant_id AND child.parent_run_id = caller.id
    AND (child.status = 'completed' OR child.status = 'failed' OR child.status = 'cancelled')
CROSS JOIN step ON step.tenant_id = child.tenant_id AND step.run_id = caller.id
    AND step.sequence = CAST(substr(child.parent_step_id, length(caller.id) + 3) AS INTEGER) AND step.status = 'pending' AND step.not_before > :now
WHERE caller.tenant_id = :tenant_id AND caller.ready_at <= :until AND caller.blocked_code IS NULL
ORDER BY caller.ready_at LIMIT :limit

-- name: count_runs_blocked
-- Runs that no worker can take, by why.
SELECT blocked_code AS name, count(*) AS count FROM run
WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL GROUP BY blocked_code

-- name: count_runs_leased
-- Runs that a worker drives.
SELECT count(*) AS count FROM run WHERE tenant_id = :tenant_id AND lease_owner IS NOT NULL

-- name: count_steps
-- Steps that are open or will be looked up again, by status. Runs that have ended have open steps while something is to be
-- done about them.
SELECT status AS name, count(*) AS count FROM (
    SELECT step.status FROM (
        SELECT id, last_committed_sequence FROM run INDEXED BY run_under_way
        WHERE tenant_id = :tenant_id AND status <> 'completed' AND status <> 'failed' AND status <> 'cancelled'
        UNION SELECT id, last_committed_sequence FROM run INDEXED BY run_ready
        WHERE tenant_id = :tenant_id AND ready_at IS NOT NULL AND blocked_code IS NULL
        UNION SELECT id, last_committed_sequence FROM run INDEXED BY run_blocked
        WHERE tenant_id = :tenant_id AND blocked_code IS NOT NULL
    ) AS open
    CROSS JOIN step ON step.tenant_id = :tenant_id AND step.run_id = open.id
        AND step.sequence > open.last_committed_sequence
        AND step.status NOT IN ('succeeded', 'failed') AND step.doubt_since IS NULL AND step.look_at IS NULL
    UNION ALL
    SELECT status FROM step INDEXED BY step_late
    WHERE tenant_id = :tenant_id AND (doubt_since IS NOT NULL OR look_at IS NOT NULL)
        AND (status NOT IN ('succeeded', 'failed') OR look_at IS NOT NULL)
) GROUP BY status

-- name: count_actions
-- Questions that wait, by kind.
SELECT kind AS name, count(*) AS count FROM pending_action INDEXED BY pending_action_waiting
WHERE tenant_id = :tenant_id AND status = 'waiting' GROUP BY kind

-- name: oldest_action
-- Since when the oldest of them waits.
SELECT created_at FROM pending_action INDEXED BY pending_action_waiting
WHERE tenant_id = :tenant_id AND status = 'waiting' ORDER BY arrival LIMIT 1

-- name: count_workers
-- Processes that are not known to be dead: a lookup across tenants.
SELECT count(*) AS count FROM worker WHERE dead_at IS NULL

-- name: count_evidence
-- Evidence behind a place, by verdict and source, and the newest place of each.
SELECT verdict, source, count(*) AS count, max(arrival) AS newest FROM evidence
WHERE arrival > :after AND tenant_id = :tenant_id GROUP BY verdict, source

-- name: statistics_runs
-- The newest runs of a span by bucket of their start and by status. The inner limit bounds what is read.
SELECT CAST((started.created_at - :since) / :bucket_s AS INTEGER) AS bucket, started.status AS status, count(*) AS count
FROM (
    SELECT created_at, status FROM run
    WHERE tenant_id = :tenant_id AND id >= :from_id AND created_at >= :since ORDER BY id DESC LIMIT :rows_max
) AS started
GROUP BY bucket, started.status

-- name: statistics_approvals
-- From each question to its decision by a person.
SELECT decided_at - created_at AS seconds FROM pending_action
WHERE tenant_id = :tenant_id AND id >= :from_id AND created_at >= :since
    AND kind = 'approve' AND decided_at IS NOT NULL AND decided_by IS NOT NULL
ORDER BY id DESC LIMIT :rows_max

-- name: statistics_lookups
-- What lookups answered about runs of a span, by verdict. The inner limit bounds what is read.
SELECT answered.verdict AS verdict, count(*) AS count
FROM (
    SELECT verdict FROM evidence
    WHERE tenant_id = :tenant_id AND run_id >= :from_id AND source = 'lookup' AND created_at >= :since
    ORDER BY run_id DESC LIMIT :rows_max
) AS answered
GROUP BY answered.verdict

-- Upkeep --------------------------------------------------------------------------------------------------------------

-- name: quick_check
-- What SQLite finds damaged, at most 100 lines; 'ok' if nothing.
PRAGMA quick_check

-- name: orphans
-- Rows without the row that they belong to, and runs whose events are not all there.
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
-- work on needs.
SELECT id, conversation_id FROM run
WHERE tenant_id = :tenant_id AND status IN ('completed', 'failed', 'cancelled') AND updated_at < :ended_before
    AND NOT EXISTS (
        SELECT 1 FROM step
        WHERE step.tenant_id = run.tenant_id AND step.run_id = run.id
            AND (step.status NOT IN ('succeeded', 'failed') OR step.look_at IS NOT NULL)
            AND NOT (step.status = 'outcome_unknown' AND step.resolution IS 'given_up' AND step.look_at IS NULL)
    )
    AND NOT EXISTS (
        SELECT 1 FROM pending_action
        WHERE pending_action.tenant_id = run.tenant_id AND pending_action.run_id = run.id
            AND pending_action.status = 'waiting'
    )
    AND id NOT IN (SELECT mark.value FROM mark WHERE mark.tenant_id = :tenant_id AND mark.kind = 'undo')
    AND NOT EXISTS (
        SELECT 1 FROM run AS caller
        WHERE caller.tenant_id = run.tenant_id AND caller.id = run.parent_run_id
            AND caller.status NOT IN ('completed', 'failed', 'cancelled')
    )
ORDER BY id LIMIT :limit

-- name: prune_keys
-- The business keys that its steps hold.
DELETE FROM operation_key
WHERE tenant_id = :tenant_id AND run_id = :run_id AND operation_key IN (
    SELECT step.operation_key FROM step WHERE step.tenant_id = :tenant_id AND step.run_id = :run_id
)

-- name: prune_steps
-- Its steps.
DELETE FROM step WHERE tenant_id = :tenant_id AND run_id = :run_id

-- name: prune_actions
-- Its actions.
DELETE FROM pending_action WHERE tenant_id = :tenant_id AND run_id = :run_id

-- name: prune_evidence
-- Its evidence.
DELETE FROM evidence WHERE tenant_id = :tenant_id AND run_id = :run_id

-- name: prune_checkpoints
-- Its checkpoint.
DELETE FROM checkpoint WHERE tenant_id = :tenant_id AND run_id = :run_id

-- name: prune_events
-- Its events; how many there were in each row.
DELETE FROM event WHERE tenant_id = :tenant_id AND run_id = :run_id RETURNING events

-- name: prune_run
-- The run.
DELETE FROM run WHERE tenant_id = :tenant_id AND id = :run_id

-- name: prune_messages
-- The messages of old conversations without runs; before the conversations.
DELETE FROM message WHERE tenant_id = :tenant_id AND conversation_id IN (
    SELECT id FROM conversation
    WHERE conversation.tenant_id = :tenant_id AND conversation.updated_at < :ended_before
        AND conversation.id NOT IN (SELECT run.conversation_id FROM run WHERE run.tenant_id = :tenant_id)
)

-- name: prune_conversations
-- Old conversations without runs.
DELETE FROM conversation
WHERE tenant_id = :tenant_id AND updated_at < :ended_before
    AND id NOT IN (SELECT run.conversation_id FROM run WHERE run.tenant_id = :tenant_id)

-- name: prune_run_blobs
-- Blobs of runs that are gone, unless a step that is left sends them.
DELETE FROM blob
WHERE tenant_id = :tenant_id AND run_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.tenant_id = blob.tenant_id AND run.id = blob.run_id)
    AND ref NOT IN (SELECT input_ref FROM step WHERE step.tenant_id = :tenant_id AND input_ref IS NOT NULL)

-- name: prune_request_blobs
-- Requests and transient blobs that are old enough, unless a step needs them that is open, in doubt, to be looked up
-- again, asked about, perhaps to be undone, or changed since.
DELETE FROM blob
WHERE tenant_id = :tenant_id AND retention IN ('request', 'transient') AND updated_at < :blobs_before
    AND ref NOT IN (
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

-- name: prune_marks
-- Facts that nobody has renewed for so long, less what is perhaps still to be undone: whoever undoes it drops it; and less
-- what is, for the target may list it for ever. What could not be undone is a fact of its run.
DELETE FROM mark
WHERE tenant_id = :tenant_id AND updated_at < :ended_before AND kind NOT IN ('undo', 'undone') AND NOT (
    kind = 'not_undone' AND value IN (SELECT run.id FROM run WHERE run.tenant_id = :tenant_id)
)

-- name: prune_announcements
-- Announcements of questions that are gone.
DELETE FROM announcement WHERE tenant_id = :tenant_id AND action_id NOT IN (
    SELECT pending_action.id FROM pending_action WHERE pending_action.tenant_id = :tenant_id
)

-- name: prune_sessions
-- Sessions that ended so long ago.
DELETE FROM credential
WHERE tenant_id = :tenant_id AND kind = 'session' AND (expires_at < :ended_before OR revoked_at < :ended_before)

-- name: incremental_vacuum
-- Gives free pages back to the file system.
PRAGMA incremental_vacuum
