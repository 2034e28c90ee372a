-- The attempts of a step stand in its row, which is written with each of them anyway: a table and its index less for each
-- commit to enter.

ALTER TABLE step ADD COLUMN attempts text NOT NULL DEFAULT '[]';
UPDATE step SET attempts = tried.attempts FROM (
    SELECT tenant_id, step_id, json_agg(json_build_object(
        'number', number, 'token', token, 'account', account, 'key_id', key_id,
        'started', json_build_object('mono', started_at, 'wall', started_wall),
        'first_byte_before', first_byte_before, 'last_byte_before', last_byte_before,
        'ended', ended_at, 'end', ended_as, 'code', code,
        'absent', CASE absent WHEN 0 THEN false WHEN 1 THEN true END
    ) ORDER BY number)::text AS attempts
    FROM attempt GROUP BY tenant_id, step_id
) AS tried
WHERE step.tenant_id = tried.tenant_id AND step.id = tried.step_id;
DROP TABLE attempt;
