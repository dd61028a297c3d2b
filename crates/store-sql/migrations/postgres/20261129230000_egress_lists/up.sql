-- The hosts to which owners limit their sandboxes. NULL: all that the service allows.
ALTER TABLE sandboxes ADD COLUMN egress TEXT;
