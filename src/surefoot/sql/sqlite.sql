-- What surefoot.sql does in a user's own SQLite database. tenant_id leads the key: two tenants may share a database.

-- name: create_table
-- One row for each operation whose transaction was committed. Safe to run again.
CREATE TABLE IF NOT EXISTS surefoot_operation (
    tenant_id text NOT NULL,
    key text NOT NULL,
    tool text NOT NULL,
    run_id text NOT NULL,
    step_id text NOT NULL,
    recorded_at text NOT NULL,
    receipt text NOT NULL,
    PRIMARY KEY (tenant_id, key)
) STRICT, WITHOUT ROWID

-- name: record
-- The key becomes part of the caller's transaction. No row is written where the key is there already, unless it was
-- written alone.
INSERT INTO surefoot_operation (tenant_id, key, tool, run_id, step_id, recorded_at, receipt)
VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ?)
ON CONFLICT (tenant_id, key) DO UPDATE SET recorded_at = excluded.recorded_at, receipt = excluded.receipt
WHERE surefoot_operation.receipt = '{"alone":true}'

-- name: record_alone
-- Outside of a transaction: whether the effect happened cannot be read from this row, so it never says so.
INSERT INTO surefoot_operation (tenant_id, key, tool, run_id, step_id, recorded_at, receipt)
VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), '{"alone":true}')
ON CONFLICT DO NOTHING

-- name: find
-- Whether a transaction with this key was committed. Read while nobody else writes.
SELECT receipt, recorded_at FROM surefoot_operation WHERE tenant_id = ? AND key = ?
