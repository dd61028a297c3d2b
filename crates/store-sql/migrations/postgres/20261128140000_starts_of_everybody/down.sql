DROP INDEX start_tasks_of_everybody;
