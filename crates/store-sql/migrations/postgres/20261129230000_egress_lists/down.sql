ALTER TABLE sandboxes DROP COLUMN egress;
