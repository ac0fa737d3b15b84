-- The feed of facts reads facts of every kind in the order of (transaction, id). The index serves
-- sales, too, which skip CONFIRMED facts: so it takes the place of the one that had none of these.
CREATE INDEX facts_by_transaction ON facts(transaction, id);
DROP INDEX facts_in_order;

-- The facts of a reservation must be in their order. A transaction that gets its number, then waits,
-- and then changes a reservation that a later transaction has made, would write CANCELLED before
-- HELD. So a fact is put no lower than the highest transaction that had ended when its statement
-- began: this includes every transaction whose changes the statement can see. No reader passes this
-- fact before it is visible: while its own, lower transaction is open, readers stop before that.
ALTER TABLE facts ALTER COLUMN transaction SET DEFAULT greatest(pg_current_xact_id(),
  (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8);
