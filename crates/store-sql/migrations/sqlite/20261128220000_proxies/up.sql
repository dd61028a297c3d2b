-- Whether programs of the sandbox use the service's forward proxy.
ALTER TABLE sandboxes ADD COLUMN has_proxy INTEGER NOT NULL DEFAULT 0;
ALTER TABLE warm_sandboxes ADD COLUMN has_proxy INTEGER NOT NULL DEFAULT 0;
