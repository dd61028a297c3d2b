DROP TABLE model_reservations;
DROP TABLE model_spending;
