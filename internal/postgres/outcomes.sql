CREATE TABLE TABLE_NAME (
  cursor      text COLLATE "C" NOT NULL, -- its place in the feed: later ones of a gateway sort behind it
  gateway     text NOT NULL,
  id          text,                      -- of the job; null with batch_done
  batch       text,
  route       text,
  lane        text,
  state       text NOT NULL,             -- done, parked, discarded or batch_done
  reason      text,                      -- why it is parked
  status      integer,                   -- of the gateway's last answer; null: there was none
  reference   text,                      -- the gateway's own
  amount      numeric,                   -- in minor units, whole
  currency    text,
  attempts    integer NOT NULL,
  accepted_at timestamptz,               -- when the job was taken in; null with batch_done
  at          timestamptz NOT NULL,
  PRIMARY KEY (gateway, cursor)
)
