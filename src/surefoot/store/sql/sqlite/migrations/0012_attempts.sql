-- The attempts of a step stand in its row, which is written with each of them anyway: a table less for each commit to enter.
-- 17 digits are what a float needs to be read as the same.

ALTER TABLE step ADD COLUMN attempts TEXT NOT NULL DEFAULT '[]';
UPDATE step SET attempts = (
    SELECT json_group_array(json_object(
        'number', number, 'token', token, 'account', account, 'key_id', key_id,
        'started', json_object('mono', json(printf('%!.17g', started_at)), 'wall', json(printf('%!.17g', started_wall))),
        'first_byte_before', json(printf('%!.17g', first_byte_before)),
        'last_byte_before', json(printf('%!.17g', last_byte_before)),
        'ended', CASE WHEN ended_at IS NULL THEN NULL ELSE json(printf('%!.17g', ended_at)) END,
        'end', ended_as, 'code', code,
        'absent', json(CASE absent WHEN 0 THEN 'false' WHEN 1 THEN 'true' ELSE 'null' END)
    ))
    FROM (
        SELECT * FROM attempt WHERE attempt.tenant_id = step.tenant_id AND attempt.step_id = step.id ORDER BY number
    )
) WHERE attempt > 0;
DROP TABLE attempt;
