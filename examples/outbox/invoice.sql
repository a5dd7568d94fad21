-- What the billing system does: the invoice and its payment, both or neither. No call to another system can fail in between.
BEGIN;
INSERT INTO invoice (number, customer, total, currency) VALUES ('2026-11-1042', 'cus_1042', 49.00, 'EUR');
INSERT INTO payment_outbox (id, gateway, batch, payload)
  VALUES ('2026-11-1042', 'stripe', '2026-11', jsonb_build_object('amount', 4900, 'currency', 'EUR', 'customer', 'cus_1042'));
COMMIT;
