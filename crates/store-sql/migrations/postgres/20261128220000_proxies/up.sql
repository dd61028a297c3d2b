-- Whether programs of the sandbox use the service's forward proxy.
ALTER TABLE sandboxes ADD COLUMN has_proxy BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE warm_sandboxes ADD COLUMN has_proxy BOOLEAN NOT NULL DEFAULT FALSE;
