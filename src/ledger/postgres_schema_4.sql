-- A key's row names the reservation that the request made; the answer is rendered from that
-- reservation. Nodes of an older version store the answer in `response`, which begins with
-- {"id":"…", and ledger_hold_1 and ledger_hold_together_1 stay for them. They refuse a row whose
-- status is 204 as invalid (503), so they never answer one that has no `response`.
ALTER TABLE idempotency ADD COLUMN reservation_id UUID;
ALTER TABLE idempotency ALTER COLUMN status SET DEFAULT 204;
ALTER TABLE idempotency ALTER COLUMN response SET DEFAULT '';

-- Holds that do not depend on each other and that only their seats can refuse: those whose seats are
-- free are written at once, as if they had come first, which makes no difference to the others.
-- Returns which these are.
CREATE FUNCTION ledger_hold_together_2(
  a_ids UUID[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[], a_entries BIGINT[],
  a_strategies TEXT[], a_seats TEXT[], a_prices BIGINT[], a_currencies TEXT[], a_expires BIGINT[],
  a_created BIGINT[], a_versions TEXT[], a_fences TEXT[],
  a_key_users TEXT[], a_routes TEXT[], a_keys TEXT[], a_digests BYTEA[]
) RETURNS BOOLEAN[] LANGUAGE plpgsql AS $$
DECLARE
  fit BOOLEAN[];
  is_written BOOLEAN;
BEGIN
  -- Holds that nothing but their seats can refuse. The holds of one user count together.
  SELECT array_agg(coalesce(
      a.id_rank = 1 AND (a.key IS NULL OR a.key_rank = 1)
      AND (SELECT true FROM reservations r WHERE r.id = a.id) IS NULL
      AND (SELECT true FROM idempotency i
           WHERE i.user_id = a.key_user AND i.route = a.route AND i.key = a.key) IS NULL
      AND c.event_id = a.event_id AND c.capacity >= a.numbers[cardinality(a.numbers)]
      AND (SELECT e.max_per_user FROM events e WHERE e.id = a.event_id)
        >= a.together + coalesce(b.seats, 0)
      AND (b.seats IS NOT NULL OR (SELECT true FROM buyers t
           WHERE t.event_id = a.event_id AND t.user_id = a.user_id) IS NULL)
      AND q.status = 'ACTIVE' AND q.user_id = a.user_id
      AND q.active_expires_at > a.created_at, false) ORDER BY a.n)
    INTO fit
    FROM (
      SELECT u.*, row_number() OVER (PARTITION BY u.id ORDER BY u.n) AS id_rank,
        row_number() OVER (PARTITION BY u.key_user, u.route, u.key ORDER BY u.n) AS key_rank,
        sum(cardinality(u.numbers)) OVER (PARTITION BY u.event_id, u.user_id) AS together
      FROM (
        SELECT t.*, string_to_array(t.seats, ',')::BIGINT[] AS numbers
        FROM unnest(a_ids, a_events, a_sections, a_users, a_entries, a_seats, a_created,
          a_key_users, a_routes, a_keys) WITH ORDINALITY AS t(id, event_id, section_id, user_id,
          entry_seq, seats, created_at, key_user, route, key, n)) u) a
    LEFT JOIN LATERAL (
      SELECT t.event_id, t.capacity FROM sections t
      WHERE t.id = a.section_id AND t.removed_version IS NULL OFFSET 0) c ON true
    LEFT JOIN LATERAL (
      SELECT t.seats FROM buyers t WHERE t.event_id = a.event_id AND t.user_id = a.user_id
      FOR UPDATE SKIP LOCKED) b ON true
    LEFT JOIN LATERAL (
      SELECT t.status, t.user_id, t.active_expires_at FROM queue_entries t
      WHERE t.event_id = a.event_id AND t.seq = a.entry_seq FOR SHARE SKIP LOCKED) q ON true;

  -- Of these, the holds whose seats are free, and wanted by no hold before them.
  SELECT array_agg(j.is_free ORDER BY j.n) INTO fit FROM (
    SELECT a.n, bool_and(fit[a.n] AND a.seat_rank = 1 AND CASE WHEN s.state IS NULL
        THEN coalesce(a.version, 0) = 0 AND (SELECT true FROM seats t
             WHERE t.section_id = a.section_id AND t.seat_no = a.seat_no) IS NULL
        ELSE s.state = 'AVAILABLE' AND s.version = coalesce(a.version, s.version)
             AND s.fence <= coalesce(a.fence, s.fence) END) AS is_free
    FROM (
      SELECT t.n, t.section_id, w.seat_no, w.version, w.fence,
        row_number() OVER (PARTITION BY t.section_id, w.seat_no ORDER BY t.n) AS seat_rank
      FROM unnest(a_sections, a_seats, a_versions, a_fences)
        WITH ORDINALITY AS t(section_id, seats, versions, fences, n)
      CROSS JOIN LATERAL unnest(string_to_array(t.seats, ',')::BIGINT[],
        string_to_array(t.versions, ',')::BIGINT[], string_to_array(t.fences, ',')::BIGINT[])
        AS w(seat_no, version, fence)) a
    LEFT JOIN LATERAL (
      SELECT t.state, t.version, t.fence FROM seats t
      WHERE fit[a.n] AND t.section_id = a.section_id AND t.seat_no = a.seat_no
      FOR UPDATE SKIP LOCKED) s ON true
    GROUP BY a.n) j;

  WITH held AS MATERIALIZED (
    SELECT t.*, cardinality(string_to_array(t.seats, ',')) AS seat_count
    FROM unnest(a_ids, a_events, a_sections, a_users, a_entries, a_strategies, a_seats, a_prices,
      a_currencies, a_expires, a_created, a_fences, a_key_users, a_routes, a_keys, a_digests)
      WITH ORDINALITY AS t(id, event_id, section_id, user_id, entry_seq, strategy, seats, price,
      currency, expires_at, created_at, fences, key_user, route, key, digest, n)
    WHERE fit[t.n]
  ), want AS MATERIALIZED (
    SELECT t.event_id, t.user_id, sum(t.seat_count) AS seats FROM held t
    GROUP BY t.event_id, t.user_id
  ), buyer AS (
    INSERT INTO buyers AS b(event_id, user_id, seats, held)
      SELECT t.event_id, t.user_id, t.seats, t.seats FROM want t ORDER BY t.event_id, t.user_id
      ON CONFLICT (event_id, user_id) DO UPDATE
      SET seats = b.seats + excluded.seats, held = b.held + excluded.held
      WHERE b.seats + excluded.seats <=
        (SELECT e.max_per_user FROM events e WHERE e.id = excluded.event_id)
      RETURNING 1
  ), reservation AS (
    INSERT INTO reservations AS r(id, event_id, section_id, user_id, entry_seq, strategy, status,
      seat_count, seats, price, currency, expires_at, created_at)
      SELECT t.id, t.event_id, t.section_id, t.user_id, t.entry_seq, t.strategy, 'HELD',
        t.seat_count, t.seats, t.price, t.currency, t.expires_at, t.created_at
      FROM held t ORDER BY t.id
      ON CONFLICT DO NOTHING RETURNING 1
  ), seat AS (
    INSERT INTO seats AS s(section_id, seat_no, state, reservation_id, version, fence)
      SELECT t.section_id, w.seat_no, 'HELD', t.id, 1, coalesce(w.fence, 0)
      FROM held t CROSS JOIN LATERAL unnest(string_to_array(t.seats, ',')::BIGINT[],
        string_to_array(t.fences, ',')::BIGINT[]) AS w(seat_no, fence)
      ORDER BY t.section_id, w.seat_no
      ON CONFLICT (section_id, seat_no) DO UPDATE
      SET state = 'HELD', reservation_id = excluded.reservation_id, version = s.version + 1,
        fence = greatest(s.fence, excluded.fence)
      WHERE s.state = 'AVAILABLE' AND (excluded.fence = 0 OR s.fence <= excluded.fence)
      RETURNING 1
  ), fact AS (
    INSERT INTO facts(kind, event_id, section_id, reservation_id, user_id, seat_count, at)
      SELECT 'HELD', t.event_id, t.section_id, t.id, t.user_id, t.seat_count, t.created_at
      FROM held t ORDER BY t.n
  ), key AS (
    INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id, created_at)
      SELECT t.key_user, t.route, t.key, t.digest, t.id, t.created_at
      FROM held t WHERE t.key IS NOT NULL ORDER BY t.key_user, t.route, t.key
      ON CONFLICT DO NOTHING RETURNING 1
  )
  SELECT (SELECT count(*) FROM buyer) = (SELECT count(*) FROM want)
    AND (SELECT count(*) FROM reservation) = (SELECT count(*) FROM held)
    AND (SELECT count(*) FROM seat) = (SELECT coalesce(sum(t.seat_count), 0) FROM held t)
    AND (SELECT count(*) FROM key) = (SELECT count(t.key) FROM held t) INTO is_written;
  IF NOT is_written THEN
    RAISE EXCEPTION 'a concurrent transaction took a seat, an id or a key' USING ERRCODE = 'AD001';
  END IF;
  RETURN fit;
END $$;

-- Holds: most at once, the others one after the other. Returns one row for each, in the order of
-- writing; `place` is its index in the lists, `replayed` the reservation that the same key made
-- before. The caller updates the counts of the sections (ledger_tally_1).
CREATE FUNCTION ledger_hold_2(
  a_ids UUID[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[], a_entries BIGINT[],
  a_strategies TEXT[], a_seats TEXT[], a_prices BIGINT[], a_currencies TEXT[], a_expires BIGINT[],
  a_created BIGINT[], a_versions TEXT[], a_fences TEXT[],
  a_key_users TEXT[], a_routes TEXT[], a_keys TEXT[], a_digests BYTEA[], a_wait BIGINT
) RETURNS TABLE(
  place BIGINT, outcome TEXT, held BOOLEAN, became TEXT, refused TEXT, replayed UUID
) LANGUAGE plpgsql AS $$
DECLARE
  written BOOLEAN[];
  h RECORD;
  k RECORD;
  old RECORD;
  room RECORD;
  judged RECORD;
  has BIGINT;
  changed BIGINT;
  wanted BIGINT[];
  fences BIGINT[];
  count_of BIGINT;
BEGIN
  IF a_wait = 0 AND cardinality(a_ids) > 1 THEN
    written := ledger_hold_together_2(a_ids, a_events, a_sections, a_users, a_entries, a_strategies,
      a_seats, a_prices, a_currencies, a_expires, a_created, a_versions, a_fences, a_key_users,
      a_routes, a_keys, a_digests);
    RETURN QUERY
      SELECT w.n, 'OK', true, 'HELD', '', NULL::UUID
      FROM unnest(written) WITH ORDINALITY AS w(is_so, n) WHERE w.is_so;
  END IF;

  FOR h IN
    SELECT * FROM unnest(a_ids, a_events, a_sections, a_users, a_entries, a_strategies, a_seats,
      a_prices, a_currencies, a_expires, a_created, a_versions, a_fences, a_key_users, a_routes,
      a_keys, a_digests)
      WITH ORDINALITY AS a(id, event_id, section_id, user_id, entry_seq, strategy, seats, price,
      currency, expires_at, created_at, versions, fences, key_user, route, key, digest,
      n)
    WHERE written[n] IS NOT TRUE ORDER BY n
  LOOP
    place := h.n;
    outcome := 'OK';
    held := false;
    became := 'HELD';
    refused := '';
    replayed := NULL;
    wanted := string_to_array(h.seats, ',')::BIGINT[];
    fences := string_to_array(h.fences, ',')::BIGINT[];
    count_of := cardinality(wanted);

    -- The key may have been used.
    IF h.key IS NOT NULL THEN
      SELECT i.body_digest, coalesce(i.reservation_id, substr(i.response, 8, 36)::UUID) AS made
        INTO k FROM idempotency i
        WHERE i.user_id = h.key_user AND i.route = h.route AND i.key = h.key;
      IF FOUND THEN
        IF k.body_digest = h.digest THEN
          replayed := k.made;
        ELSE
          outcome := 'IDEMPOTENCY_MISMATCH';
        END IF;
        RETURN NEXT;
        CONTINUE;
      END IF;
    END IF;

    -- The id may be there: the same hold once more, or another one, or an undone one.
    SELECT r.section_id, r.user_id, r.seats, r.status INTO old FROM reservations r
      WHERE r.id = h.id;
    IF FOUND THEN
      IF old.status <> 'VOID' AND old.section_id = h.section_id AND old.user_id = h.user_id
         AND old.seats = h.seats THEN
        became := old.status;
      ELSE
        outcome := 'CONFLICT';
      END IF;
      RETURN NEXT;
      CONTINUE;
    END IF;

    SELECT c.capacity, c.mode = 'seat' AS ledger_decides, e.max_per_user INTO room
      FROM sections c JOIN events e ON e.id = c.event_id
      WHERE c.id = h.section_id AND c.event_id = h.event_id AND c.removed_version IS NULL;
    IF NOT FOUND THEN
      outcome := 'SECTION_NOT_FOUND';
      RETURN NEXT;
      CONTINUE;
    END IF;
    IF h.strategy <> 'queue' AND room.ledger_decides
       <> (h.strategy IN ('optimistic','pessimistic','distributed-lock')) THEN
      outcome := 'STRATEGY_NOT_ALLOWED';
      RETURN NEXT;
      CONTINUE;
    END IF;

    -- SKIP LOCKED finds no row when it is locked, too: without a_wait, look again without a lock.
    IF a_wait = 1 THEN
      SELECT b.seats INTO has FROM buyers b
        WHERE b.event_id = h.event_id AND b.user_id = h.user_id FOR UPDATE;
    ELSE
      SELECT b.seats INTO has FROM buyers b
        WHERE b.event_id = h.event_id AND b.user_id = h.user_id FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        PERFORM FROM buyers b WHERE b.event_id = h.event_id AND b.user_id = h.user_id;
        IF FOUND THEN
          outcome := 'BLOCKED';
          RETURN NEXT;
          CONTINUE;
        END IF;
      END IF;
    END IF;
    IF coalesce(has, 0) + count_of > room.max_per_user THEN
      PERFORM ledger_hold_unmade_1(h.id, h.key_user, h.route, h.key);
      outcome := 'LIMIT_EXCEEDED';
      RETURN NEXT;
      CONTINUE;
    END IF;

    -- A concurrent leave waits for this lock and then finds the hold; or it was first and is seen.
    IF a_wait = 1 THEN
      PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq FOR SHARE;
    ELSE
      PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq
        FOR SHARE SKIP LOCKED;
      IF NOT FOUND THEN
        PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq;
        IF FOUND THEN
          outcome := 'BLOCKED';
          RETURN NEXT;
          CONTINUE;
        END IF;
      END IF;
    END IF;
    PERFORM FROM queue_entries q
      WHERE q.event_id = h.event_id AND q.seq = h.entry_seq AND q.user_id = h.user_id
        AND q.status = 'ACTIVE' AND q.active_expires_at > h.created_at;
    IF NOT FOUND THEN
      PERFORM ledger_hold_unmade_1(h.id, h.key_user, h.route, h.key);
      outcome := 'NOT_ACTIVE';
      RETURN NEXT;
      CONTINUE;
    END IF;

    -- The refusal of a list is that of its worst seat. A seat without a row was never sold.
    IF a_wait = 1 THEN
      PERFORM FROM unnest(wanted) AS w(seat_no) CROSS JOIN LATERAL (
        SELECT FROM seats s WHERE s.section_id = h.section_id AND s.seat_no = w.seat_no
        FOR UPDATE) s;
    ELSE
      PERFORM FROM unnest(wanted) AS w(seat_no) CROSS JOIN LATERAL (
        SELECT FROM seats s WHERE s.section_id = h.section_id AND s.seat_no = w.seat_no
        FOR UPDATE SKIP LOCKED) s;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    WITH each AS (
      SELECT w.seat_no, s.seat_no IS NOT NULL AS has_row,
        CASE WHEN s.fence > w.fence THEN 3
             WHEN coalesce(s.version, 0) <> w.version THEN 2
             WHEN w.seat_no > room.capacity OR s.state <> 'AVAILABLE' THEN 1
             ELSE 0 END AS priority
      FROM unnest(wanted, string_to_array(h.versions, ',')::BIGINT[], fences)
        AS w(seat_no, version, fence)
      LEFT JOIN LATERAL (
        SELECT t.* FROM seats t WHERE t.section_id = h.section_id AND t.seat_no = w.seat_no
        OFFSET 0) s ON true)
    SELECT max(priority) AS worst, count(*) FILTER (WHERE has_row) AS rows_there,
      string_agg(seat_no::TEXT, ',' ORDER BY seat_no)
        FILTER (WHERE priority = (SELECT max(priority) FROM each)) AS worst_seats
      INTO judged FROM each;
    IF changed < judged.rows_there THEN
      -- While this waited for one seat, another transaction made the row of another.
      IF a_wait = 1 THEN
        RAISE EXCEPTION 'a concurrent transaction inserted the row of a seat' USING ERRCODE = 'AD001';
      END IF;
      outcome := 'BLOCKED';
      RETURN NEXT;
      CONTINUE;
    END IF;
    IF judged.worst > 0 THEN
      PERFORM ledger_hold_unmade_1(h.id, h.key_user, h.route, h.key);
      outcome := (ARRAY['SEAT_TAKEN', 'CONFLICT', 'LOCK_LOST'])[judged.worst];
      refused := judged.worst_seats;
      RETURN NEXT;
      CONTINUE;
    END IF;

    INSERT INTO buyers AS b(event_id, user_id, seats, held)
      VALUES (h.event_id, h.user_id, count_of, count_of)
      ON CONFLICT (event_id, user_id) DO UPDATE
      SET seats = b.seats + count_of, held = b.held + count_of
      WHERE b.seats + count_of <= room.max_per_user;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a concurrent transaction changed the row of the buyer' USING ERRCODE = 'AD001';
    END IF;
    INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy, status,
      seat_count, seats, price, currency, expires_at, created_at)
      VALUES (h.id, h.event_id, h.section_id, h.user_id, h.entry_seq, h.strategy, 'HELD',
        count_of, h.seats, h.price, h.currency, h.expires_at, h.created_at)
      ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a concurrent transaction took the id' USING ERRCODE = 'AD001';
    END IF;
    INSERT INTO seats AS s(section_id, seat_no, state, reservation_id, version, fence)
      SELECT h.section_id, w.seat_no, 'HELD', h.id, 1, coalesce(w.fence, 0)
      FROM unnest(wanted, fences) AS w(seat_no, fence) ORDER BY w.seat_no
      ON CONFLICT (section_id, seat_no) DO UPDATE
      SET state = 'HELD', reservation_id = excluded.reservation_id, version = s.version + 1,
        fence = greatest(s.fence, excluded.fence)
      WHERE s.state = 'AVAILABLE' AND (excluded.fence = 0 OR s.fence <= excluded.fence);
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> count_of THEN
      RAISE EXCEPTION 'a concurrent transaction took a seat' USING ERRCODE = 'AD001';
    END IF;
    INSERT INTO facts(kind, event_id, section_id, reservation_id, user_id, seat_count, at)
      VALUES ('HELD', h.event_id, h.section_id, h.id, h.user_id, count_of, h.created_at);
    IF h.key IS NOT NULL THEN
      INSERT INTO idempotency(user_id, route, key, body_digest, reservation_id, created_at)
        VALUES (h.key_user, h.route, h.key, h.digest, h.id, h.created_at)
        ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'a concurrent transaction used the key' USING ERRCODE = 'AD001';
      END IF;
    END IF;
    held := true;
    RETURN NEXT;
  END LOOP;
END $$;
