-- What model calls took (SpendingRepository), by owner, day (since 1970-01-01), conversation (32 hex digits, or empty) and model.
-- `cost` and `amount` are billionths of a US dollar.
CREATE TABLE model_spending (
    owner TEXT COLLATE "C" NOT NULL,
    day INTEGER NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    calls BIGINT NOT NULL,
    estimated_calls BIGINT NOT NULL,
    unpriced_calls BIGINT NOT NULL,
    input BIGINT NOT NULL,
    cached_input BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    PRIMARY KEY (owner, day, conversation, model)
);
CREATE INDEX model_spending_of_conversation ON model_spending (owner, conversation);
CREATE INDEX model_spending_by_day ON model_spending (day);

-- Amounts that calls in progress may take.
CREATE TABLE model_reservations (
    id UUID NOT NULL PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    day INTEGER NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL,
    model TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX model_reservations_of_owner ON model_reservations (owner);
CREATE INDEX model_reservations_by_age ON model_reservations (created_at);
