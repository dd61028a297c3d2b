DROP INDEX start_tasks_open;
