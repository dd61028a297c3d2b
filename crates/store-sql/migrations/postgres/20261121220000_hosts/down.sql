DROP TABLE hosts;
