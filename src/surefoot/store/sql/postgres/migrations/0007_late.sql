-- Two indexes less for each commit to enter. A step's id is made of its run and its sequence, so one key is enough for both
-- ways to it. A step that goes its ordinary way is found behind what its run has committed, and only those that are in doubt
-- or looked up again, also long after, need an index of their own. No index knows of a step's status any more, so that the
-- new version of its row needs no new entry in any of them.

DROP INDEX step_live;
CREATE INDEX step_late ON step (tenant_id, run_id, sequence) WHERE doubt_since IS NOT NULL OR look_at IS NOT NULL;
ALTER TABLE step DROP CONSTRAINT step_pkey, DROP CONSTRAINT step_tenant_id_run_id_sequence_key,
    ADD PRIMARY KEY (tenant_id, run_id, sequence);
