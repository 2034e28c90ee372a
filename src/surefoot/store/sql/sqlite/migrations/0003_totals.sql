-- What the answers of the model came to, the call that gives the run's result, and what a model call was for.

ALTER TABLE run ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN cost_microdollars INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN result_step_id TEXT;
ALTER TABLE step ADD COLUMN purpose TEXT;
