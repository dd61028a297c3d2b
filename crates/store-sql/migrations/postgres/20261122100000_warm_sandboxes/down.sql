DROP TABLE warm_sandboxes;
