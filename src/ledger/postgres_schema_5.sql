-- Asynchronous requests. The first table of requests was never used.
--
-- Nodes accept requests at the same time, so a number that is taken from a sequence would not be the
-- order of commits. Each partition has a row with its last number; a transaction that accepts
-- requests holds the row until it has committed, so a request never appears before one that is
-- already visible. A request that another feed accepted has no number of ours: seq is NULL.
DROP TABLE requests;
CREATE TABLE requests(
  id UUID PRIMARY KEY,
  partition BIGINT NOT NULL,
  seq BIGINT,
  event_id BIGINT NOT NULL,
  section_id BIGINT NOT NULL,
  user_id TEXT NOT NULL,
  entry_seq BIGINT NOT NULL,
  strategy TEXT NOT NULL,
  quantity BIGINT NOT NULL CHECK (quantity > 0),
  seats TEXT,
  body_digest BYTEA NOT NULL,
  ahead BIGINT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL,
  reservation_id UUID,
  created_at BIGINT NOT NULL,
  finished_at BIGINT,
  CHECK ((status = 'PENDING') = (finished_at IS NULL)),
  CHECK ((status = 'SUCCESS') = (reservation_id IS NOT NULL))
);
CREATE UNIQUE INDEX requests_open ON requests(partition, seq) WHERE finished_at IS NULL;

CREATE TABLE request_partitions(
  partition BIGINT PRIMARY KEY,
  last_seq BIGINT NOT NULL
) WITH (fillfactor = 20);
INSERT INTO request_partitions(partition, last_seq) SELECT n, 0 FROM generate_series(0, 15) n;

-- Which node works on each partition, and until when, by the clock of this database. The fence grows
-- each time another node gets the lease. `request_consumers` has the nodes that want leases.
CREATE TABLE request_leases(
  partition BIGINT PRIMARY KEY,
  node UUID,
  fence BIGINT NOT NULL DEFAULT 0,
  until BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
INSERT INTO request_leases(partition) SELECT n FROM generate_series(0, 15) n;

CREATE TABLE request_consumers(
  node UUID PRIMARY KEY,
  until BIGINT NOT NULL
);

-- Releases the leases of the node that it does not keep, renews the others, and takes free ones up to
-- its share. Returns what it has. A transaction that writes a result has locked the key of the lease
-- (ledger_request_decide_1): renewing does not wait for it, and a lease is not taken from under it.
-- So a node that stands still in a transaction does not keep other nodes from renewing theirs.
CREATE FUNCTION ledger_request_lease_1(
  a_node UUID, a_lease_ms BIGINT, a_keeps BIGINT[], a_stops BIGINT
) RETURNS TABLE(of_partition BIGINT, of_fence BIGINT, of_share BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
  now_ms BIGINT := (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT;
  share BIGINT;
  has BIGINT;
BEGIN
  UPDATE request_leases l SET node = NULL, until = 0
    WHERE l.node = a_node AND l.partition <> ALL(a_keeps);
  DELETE FROM request_consumers c WHERE c.node IN (
    SELECT o.node FROM request_consumers o
    WHERE o.until < now_ms OR (o.node = a_node AND a_stops = 1) FOR UPDATE SKIP LOCKED);
  IF a_stops = 1 THEN
    RETURN;
  END IF;
  INSERT INTO request_consumers AS c(node, until) VALUES (a_node, now_ms + a_lease_ms)
    ON CONFLICT (node) DO UPDATE SET until = excluded.until;
  SELECT ceil(16.0 / greatest(count(*), 1))::BIGINT INTO share FROM request_consumers c
    WHERE c.until >= now_ms;
  UPDATE request_leases l SET until = now_ms + a_lease_ms WHERE l.node = a_node;
  GET DIAGNOSTICS has = ROW_COUNT;
  WITH free AS MATERIALIZED (
    SELECT f.partition FROM request_leases f
    WHERE f.node IS NULL OR (f.until < now_ms AND f.node <> a_node)
    ORDER BY f.partition LIMIT greatest(share - has, 0) FOR UPDATE SKIP LOCKED)
  UPDATE request_leases l SET node = a_node, fence = l.fence + 1, until = now_ms + a_lease_ms
    FROM free WHERE l.partition = free.partition;
  RETURN QUERY SELECT l.partition, l.fence, share FROM request_leases l
    WHERE l.node = a_node ORDER BY l.partition;
END $$;

-- Accepts requests, in the order of the lists. Returns one row for each, in that order. A request
-- that is there already is left as it is.
CREATE FUNCTION ledger_request_put_1(
  a_ids UUID[], a_partitions BIGINT[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[],
  a_entries BIGINT[], a_strategies TEXT[], a_quantities BIGINT[], a_seats TEXT[],
  a_digests BYTEA[], a_created BIGINT[]
) RETURNS TABLE(is_new BOOLEAN, number BIGINT, state TEXT, is_same BOOLEAN, ahead BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
  first BIGINT[];
  open BIGINT[];
BEGIN
  -- In the order of partitions, as every transaction locks them. Numbers of requests that turn out
  -- to be there already are not used.
  WITH wanted AS (
    SELECT p, count(*) AS n FROM unnest(a_partitions) p GROUP BY p
  ), locked AS MATERIALIZED (
    SELECT t.partition, w.n FROM request_partitions t JOIN wanted w ON w.p = t.partition
    ORDER BY t.partition FOR UPDATE OF t
  ), changed AS (
    UPDATE request_partitions t SET last_seq = t.last_seq + l.n FROM locked l
      WHERE t.partition = l.partition RETURNING t.partition, t.last_seq - l.n AS before
  )
  SELECT array_agg(c.before ORDER BY a.n) INTO first
    FROM unnest(a_partitions) WITH ORDINALITY a(p, n) JOIN changed c ON c.partition = a.p;

  -- When no other transaction can add one.
  SELECT array_agg(CASE WHEN p.number = ANY(a_partitions) THEN (SELECT count(*) FROM requests q
      WHERE q.partition = p.number AND q.finished_at IS NULL) END ORDER BY p.number) INTO open
    FROM generate_series(0, 15) p(number);

  RETURN QUERY
  WITH asked AS MATERIALIZED (
    SELECT t.*, first[t.n] + row_number() OVER (PARTITION BY t.partition ORDER BY t.n) AS seq,
      open[t.partition + 1] + row_number() OVER (PARTITION BY t.partition ORDER BY t.n) - 1 AS open
    FROM unnest(a_ids, a_partitions, a_events, a_sections, a_users, a_entries, a_strategies,
      a_quantities, a_seats, a_digests, a_created)
      WITH ORDINALITY AS t(id, partition, event_id, section_id, user_id, entry_seq, strategy,
      quantity, seats, digest, created_at, n)
  ), added AS (
    INSERT INTO requests AS q(id, partition, seq, event_id, section_id, user_id, entry_seq,
      strategy, quantity, seats, body_digest, ahead, status, reason, created_at)
      SELECT DISTINCT ON (a.id) a.id, a.partition, a.seq, a.event_id, a.section_id, a.user_id,
        a.entry_seq, a.strategy, a.quantity, a.seats, a.digest, a.open, 'PENDING', '',
        a.created_at
      FROM asked a ORDER BY a.id, a.n
      ON CONFLICT (id) DO NOTHING RETURNING q.id, q.seq, q.ahead
  )
  SELECT d.seq IS NOT DISTINCT FROM a.seq AND d.seq IS NOT NULL,
    coalesce(d.seq, q.seq, 0),
    CASE WHEN d.seq IS NOT NULL THEN 'PENDING' ELSE q.status END,
    CASE WHEN d.seq IS NOT NULL
      THEN f.user_id = a.user_id AND f.digest = a.digest
      ELSE q.user_id = a.user_id AND q.body_digest = a.digest END,
    coalesce(d.ahead, q.ahead)
  FROM asked a
    LEFT JOIN added d ON d.id = a.id
    LEFT JOIN asked f ON f.id = d.id AND f.seq = d.seq
    LEFT JOIN requests q ON q.id = a.id
  ORDER BY a.n;
END $$;

-- Decides requests, in the order of the lists. Returns one row for each, in that order: whether this
-- call decided it, and how it is decided now. A hold for the request has written a row with its
-- reservation into `idempotency`; a failure writes one that names no reservation, with a digest that
-- no hold has, so that no hold follows.
CREATE FUNCTION ledger_request_decide_1(
  a_ids UUID[], a_partitions BIGINT[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[],
  a_entries BIGINT[], a_strategies TEXT[], a_quantities BIGINT[], a_seats TEXT[],
  a_digests BYTEA[], a_created BIGINT[], a_states TEXT[], a_reasons TEXT[],
  a_reservations UUID[], a_finished BIGINT[], a_fences BIGINT[]
) RETURNS TABLE(is_new BOOLEAN, state TEXT, why TEXT, made UUID)
LANGUAGE plpgsql AS $$
DECLARE
  a RECORD;
  none CONSTANT UUID := '00000000-0000-0000-0000-000000000000';
BEGIN
  FOR a IN
    SELECT * FROM unnest(a_ids, a_partitions, a_events, a_sections, a_users, a_entries,
      a_strategies, a_quantities, a_seats, a_digests, a_created, a_states, a_reasons,
      a_reservations, a_finished, a_fences)
      WITH ORDINALITY AS t(id, partition, event_id, section_id, user_id, entry_seq, strategy,
      quantity, seats, digest, created_at, state, reason, reservation_id, finished_at, fence, n)
    ORDER BY n
  LOOP
    is_new := false;
    -- No other node takes the lease before this transaction has ended.
    IF a.fence > 0 THEN
      PERFORM FROM request_leases l WHERE l.partition = a.partition AND l.fence = a.fence
        FOR KEY SHARE;
      IF NOT FOUND THEN
        state := 'LEASE_LOST';
        why := '';
        made := NULL;
        RETURN NEXT;
        CONTINUE;
      END IF;
    END IF;
    SELECT q.status, q.reason, q.reservation_id INTO state, why, made FROM requests q
      WHERE q.id = a.id FOR UPDATE;
    IF FOUND AND state <> 'PENDING' THEN
      RETURN NEXT;
      CONTINUE;
    END IF;
    state := a.state;
    why := a.reason;
    made := a.reservation_id;
    IF state <> 'SUCCESS' THEN
      INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id, created_at)
        VALUES (a.user_id, '/api/v4/queue', a.id::text, decode(repeat('00', 32), 'hex'), none,
          a.finished_at)
        ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        SELECT i.reservation_id INTO made FROM idempotency i
          WHERE i.user_id = a.user_id AND i.route = '/api/v4/queue' AND i.key = a.id::text;
        IF NOT FOUND THEN
          RAISE EXCEPTION 'a concurrent transaction removed the key' USING ERRCODE = 'AD001';
        END IF;
        IF made <> none THEN
          state := 'SUCCESS';
          why := '';
        ELSE
          made := NULL;
        END IF;
      END IF;
    END IF;
    INSERT INTO requests AS q(id, partition, event_id, section_id, user_id, entry_seq, strategy,
      quantity, seats, body_digest, ahead, status, reason, reservation_id, created_at, finished_at)
      VALUES (a.id, a.partition, a.event_id, a.section_id, a.user_id, a.entry_seq, a.strategy,
        a.quantity, a.seats, a.digest, 0, state, why, made, a.created_at, a.finished_at)
      ON CONFLICT (id) DO UPDATE SET status = excluded.status, reason = excluded.reason,
        reservation_id = excluded.reservation_id, finished_at = excluded.finished_at
      WHERE q.status = 'PENDING';
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a concurrent transaction decided the request' USING ERRCODE = 'AD001';
    END IF;
    is_new := true;
    RETURN NEXT;
  END LOOP;
END $$;
