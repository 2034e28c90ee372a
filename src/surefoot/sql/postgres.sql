-- What surefoot.sql does in a user's own PostgreSQL database. tenant_id leads the key: two tenants may share a database.

-- name: create_table
-- One row for each operation whose transaction was committed. Safe to run again.
CREATE TABLE IF NOT EXISTS surefoot_operation (
    tenant_id text NOT NULL,
    key text NOT NULL,
    tool text NOT NULL,
    run_id text NOT NULL,
    step_id text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    receipt json NOT NULL,
    PRIMARY KEY (tenant_id, key)
)

-- name: hold
-- Until its transaction ends, this one holds the key's lock: a lookup sees that it is open. Waits for an earlier attempt.
SELECT pg_advisory_xact_lock(hashtextextended('surefoot_operation:' || %s || ':' || %s, 0))

-- name: record
-- The key becomes part of the caller's transaction. No row is written where the key is there already, unless it was
-- written alone.
INSERT INTO surefoot_operation (tenant_id, key, tool, run_id, step_id, receipt)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant_id, key) DO UPDATE SET recorded_at = excluded.recorded_at, receipt = excluded.receipt
WHERE surefoot_operation.receipt::text = '{"alone":true}'

-- name: record_alone
-- Outside of a transaction: whether the effect happened cannot be read from this row, so it never says so.
INSERT INTO surefoot_operation (tenant_id, key, tool, run_id, step_id, receipt)
VALUES (%s, %s, %s, %s, %s, '{"alone":true}')
ON CONFLICT DO NOTHING

-- name: probe
-- Whether no transaction with this key is open, and whether this server only follows another one.
SELECT pg_try_advisory_xact_lock(hashtextextended('surefoot_operation:' || %s || ':' || %s, 0)), pg_is_in_recovery()

-- name: find
-- Whether a transaction with this key was committed. Asked in a transaction of its own, after the probe's has ended; a
-- pooler may give it to another server than the probe. One row in any case.
SELECT pg_is_in_recovery(), kept.receipt::text, kept.recorded_at::text
FROM (SELECT %s AS tenant_id, %s AS key) AS asked
LEFT JOIN surefoot_operation AS kept ON kept.tenant_id = asked.tenant_id AND kept.key = asked.key
