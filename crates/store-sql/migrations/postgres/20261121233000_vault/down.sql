DROP INDEX idempotency_keys_latest;
DROP TABLE key_holders;
DROP TABLE vault;
