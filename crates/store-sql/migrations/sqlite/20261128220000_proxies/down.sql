ALTER TABLE warm_sandboxes DROP COLUMN has_proxy;
ALTER TABLE sandboxes DROP COLUMN has_proxy;
