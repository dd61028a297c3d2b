-- What all members of an organization may spend on models in a calendar month, in billionths of a US dollar. NULL: no limit.
ALTER TABLE organizations ADD COLUMN month_budget BIGINT;
