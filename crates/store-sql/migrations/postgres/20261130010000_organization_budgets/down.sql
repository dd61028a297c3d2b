ALTER TABLE organizations DROP COLUMN month_budget;
