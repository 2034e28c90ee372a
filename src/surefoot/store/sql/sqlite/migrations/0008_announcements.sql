-- What a hook is to be told of again, by time: a look at it does not grow with what the hook was told of already.

CREATE INDEX announcement_again ON announcement (tenant_id, hook, next_at) WHERE next_at IS NOT NULL;
