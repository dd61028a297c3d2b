-- How many starts of a user are open is asked at each start; without it all that the user ever started was looked at.
CREATE INDEX start_tasks_open ON start_tasks (owner) WHERE is_open;
