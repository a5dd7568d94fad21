-- The outbox of a billing system: payments to be made, written in its own transactions. "enqueue --outbox payment_outbox" takes them over.
-- The columns up to refused are needed; leave out those behind it that you don't use. Further ones are passed over.
CREATE TABLE payment_outbox (
  position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- they go in this order
  id          text NOT NULL UNIQUE, -- of the job: a payment has the same one for ever. 1 to 200 visible ASCII characters, no space
  payload     jsonb NOT NULL,       -- an object: what the gateway gets, or what its map makes a payload of
  accepted_at timestamptz,          -- set when the job is taken in; null: it waits
  refused     text,                 -- set when it can't be a job, with the reason; mend the row and set it to null again
  gateway     text,                 -- null: that of -g, or the only one there is
  batch       text,
  priority    text,
  route       text,
  lane        text,
  cost        bigint,
  at          timestamptz,          -- not before
  expires     timestamptz           -- not after
);
CREATE INDEX payment_outbox_waiting ON payment_outbox (position) WHERE accepted_at IS NULL AND refused IS NULL;
