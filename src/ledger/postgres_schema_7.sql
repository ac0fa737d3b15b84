-- The topics to which facts are published. One node at a time publishes to a topic: the one that has
-- the lease, until the time that is given by the clock of this database. All facts up to
-- (transaction, fact_id) are in the topic.
CREATE TABLE fact_publications(
  topic TEXT PRIMARY KEY,
  transaction XID8 NOT NULL DEFAULT '0',
  fact_id BIGINT NOT NULL DEFAULT 0,
  node UUID,
  until BIGINT NOT NULL
) WITH (fillfactor = 20);
