-- What model calls took (SpendingRepository), by owner, day (since 1970-01-01), conversation (32 hex digits, or empty) and model.
-- `cost` and `amount` are billionths of a US dollar.
CREATE TABLE model_spending (
    owner TEXT NOT NULL,
    day INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    model TEXT NOT NULL,
    calls INTEGER NOT NULL,
    estimated_calls INTEGER NOT NULL,
    unpriced_calls INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cached_input INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    PRIMARY KEY (owner, day, conversation, model)
) STRICT;
CREATE INDEX model_spending_of_conversation ON model_spending (owner, conversation);
CREATE INDEX model_spending_by_day ON model_spending (day);

-- Amounts that calls in progress may take.
CREATE TABLE model_reservations (
    id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    day INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    model TEXT NOT NULL,
    amount INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX model_reservations_of_owner ON model_reservations (owner);
CREATE INDEX model_reservations_by_age ON model_reservations (created_at);
