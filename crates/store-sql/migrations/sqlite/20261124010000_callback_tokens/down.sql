DROP INDEX sandboxes_callback_token_hash;
ALTER TABLE sandboxes DROP COLUMN callback_token_hash;
