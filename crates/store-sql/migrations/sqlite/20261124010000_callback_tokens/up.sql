-- Conversations of new sandboxes hold this token, so that the session key can change. Conversations of older sandboxes hold the
-- session key, so these rows have no hash.
ALTER TABLE sandboxes ADD COLUMN callback_token_hash TEXT;
CREATE UNIQUE INDEX sandboxes_callback_token_hash ON sandboxes (callback_token_hash);
