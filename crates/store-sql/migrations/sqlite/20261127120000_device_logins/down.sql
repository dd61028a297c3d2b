DROP TABLE device_logins;
