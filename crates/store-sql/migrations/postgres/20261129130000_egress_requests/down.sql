DROP TABLE egress_requests;
