-- Administrators list the starts of all owners (StartTaskRepository::search with Scope::System).
CREATE INDEX start_tasks_of_everybody ON start_tasks (created_at, id);
