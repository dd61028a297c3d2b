DROP INDEX leases_by_end;
DROP INDEX deleted_conversations_by_age;
DROP INDEX start_tasks_ended;
