CREATE TABLE TABLE_NAME (
  reader    text NOT NULL,
  gateway   text NOT NULL,
  cursor    text NOT NULL,                      -- the rows up to it are in the table; empty: none is
  copied_at timestamptz NOT NULL DEFAULT now(), -- when it was last moved
  PRIMARY KEY (reader, gateway)
)
