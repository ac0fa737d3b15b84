-- counted: the undecided requests up to the number counted_seq, at the time counted_at.
ALTER TABLE request_partitions
  ADD COLUMN counted BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN counted_seq BIGINT NOT NULL DEFAULT 0,
  ADD COLUMN counted_at BIGINT NOT NULL DEFAULT 0;

-- Accepts requests, in the order of the lists. Returns one row for each, in that order. A request
-- that is there already is left as it is.
--
-- The undecided requests of a partition are counted for each batch while they are few. Above 1,000,
-- the count is cached for 200 ms: requests accepted since then are added, and requests decided since
-- then are not subtracted. So the position at acceptance is never too low, and does not rise later.
CREATE OR REPLACE FUNCTION ledger_request_put_1(
  a_ids UUID[], a_partitions BIGINT[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[],
  a_entries BIGINT[], a_strategies TEXT[], a_quantities BIGINT[], a_seats TEXT[],
  a_digests BYTEA[], a_created BIGINT[]
) RETURNS TABLE(is_new BOOLEAN, number BIGINT, state TEXT, is_same BOOLEAN, ahead BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
  few CONSTANT BIGINT := 1000;
  age_ms CONSTANT BIGINT := 200;
  now_ms BIGINT;
  first BIGINT[];
  open BIGINT[];
  known RECORD;
  n_open BIGINT;
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
  now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
  FOR known IN
    SELECT p.partition, p.counted, p.counted_seq, p.counted_at, p.last_seq - w.n AS before
      FROM request_partitions p
      JOIN (SELECT u, count(*) AS n FROM unnest(a_partitions) u GROUP BY u) w ON w.u = p.partition
  LOOP
    n_open := known.counted + known.before - known.counted_seq;
    IF n_open < few OR now_ms - known.counted_at NOT BETWEEN 0 AND age_ms THEN
      SELECT count(*) INTO n_open FROM requests q
        WHERE q.partition = known.partition AND q.finished_at IS NULL;
      IF n_open >= few THEN
        UPDATE request_partitions p SET counted = n_open, counted_seq = known.before,
          counted_at = now_ms WHERE p.partition = known.partition;
      END IF;
    END IF;
    open[known.partition + 1] := n_open;
  END LOOP;

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
-- no hold has, so that no hold follows. A request of another feed has the number 0, and any id: if
-- the request with this id is another user's, nothing changes, and the state is OTHER_USER.
CREATE FUNCTION ledger_request_decide_2(
  a_ids UUID[], a_partitions BIGINT[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[],
  a_entries BIGINT[], a_strategies TEXT[], a_quantities BIGINT[], a_seats TEXT[],
  a_digests BYTEA[], a_created BIGINT[], a_states TEXT[], a_reasons TEXT[],
  a_reservations UUID[], a_finished BIGINT[], a_fences BIGINT[], a_numbers BIGINT[]
) RETURNS TABLE(is_new BOOLEAN, state TEXT, why TEXT, made UUID)
LANGUAGE plpgsql AS $$
DECLARE
  a RECORD;
  owner TEXT;
  none CONSTANT UUID := '00000000-0000-0000-0000-000000000000';
BEGIN
  FOR a IN
    SELECT * FROM unnest(a_ids, a_partitions, a_events, a_sections, a_users, a_entries,
      a_strategies, a_quantities, a_seats, a_digests, a_created, a_states, a_reasons,
      a_reservations, a_finished, a_fences, a_numbers)
      WITH ORDINALITY AS t(id, partition, event_id, section_id, user_id, entry_seq, strategy,
      quantity, seats, digest, created_at, state, reason, reservation_id, finished_at, fence, number,
      n)
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
    SELECT q.status, q.reason, q.reservation_id, q.user_id INTO state, why, made, owner
      FROM requests q WHERE q.id = a.id FOR UPDATE;
    IF FOUND AND a.number = 0 AND owner <> a.user_id THEN
      state := 'OTHER_USER';
      why := '';
      made := NULL;
      RETURN NEXT;
      CONTINUE;
    END IF;
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
