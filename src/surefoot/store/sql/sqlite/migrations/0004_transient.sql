-- Blobs that live until a batch is answered are found by their run; there is at most one a run.

CREATE INDEX blob_transient ON blob (tenant_id, run_id) WHERE retention = 'transient';
