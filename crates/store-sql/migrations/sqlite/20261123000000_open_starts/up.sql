-- Each start counts the user's unfinished starts. Without this index it would read all starts of the user.
CREATE INDEX start_tasks_open ON start_tasks (owner) WHERE is_open;
