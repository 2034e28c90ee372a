-- The indexes that a run enters at its start and at its end, with its statuses compared one by one: of a list of more than
-- two SQLite makes a table each time a row is written, which cost three times as much as all the rest of the row.

DROP INDEX run_under_way;
CREATE UNIQUE INDEX run_under_way ON run (tenant_id, conversation_id)
    WHERE status <> 'completed' AND status <> 'failed' AND status <> 'cancelled';
DROP INDEX run_over;
CREATE INDEX run_over ON run (tenant_id, status) WHERE status = 'completed' OR status = 'failed' OR status = 'cancelled';
