-- confirm_by is NULL if the event does not set it.
ALTER TABLE events ADD COLUMN confirm_by TEXT CHECK (confirm_by IN ('shop','user'));
ALTER TABLE events ADD COLUMN cancel_confirmed SMALLINT NOT NULL DEFAULT 0
  CHECK (cancel_confirmed IN (0, 1));

ALTER TABLE events ADD COLUMN rehold_s BIGINT NOT NULL DEFAULT 60 CHECK (rehold_s >= 0);
ALTER TABLE events ADD COLUMN max_holds_per_stay BIGINT NOT NULL DEFAULT 0
  CHECK (max_holds_per_stay >= 0);
-- The hold that ended last on the seat, if it ended unconfirmed.
ALTER TABLE seats ADD COLUMN given_up UUID;
-- Counted only while the event limits it.
ALTER TABLE queue_entries ADD COLUMN holds BIGINT NOT NULL DEFAULT 0 CHECK (holds >= 0);

-- Like CANCEL of ledger_outcome_1, with the same columns, but it refuses a reservation that is
-- CONFIRMED. The reservation is locked first, so that it cannot become CONFIRMED in between.
CREATE FUNCTION ledger_cancel_held_1(a_id UUID, a_user TEXT, a_now BIGINT, a_wait BIGINT)
RETURNS TABLE(
  outcome TEXT, became TEXT, completed BOOLEAN, of_section BIGINT, held_by BIGINT,
  confirmed_by BIGINT, id UUID, event_id BIGINT, section_id BIGINT, user_id TEXT, entry_seq BIGINT,
  strategy TEXT, status TEXT, seat_count BIGINT, seats TEXT, price BIGINT, currency TEXT,
  expires_at BIGINT, created_at BIGINT, confirmed_at BIGINT, ended_at BIGINT,
  confirmation_code TEXT
) LANGUAGE plpgsql AS $$
BEGIN
  IF NOT ledger_lock_1(ARRAY[a_id], a_wait) THEN
    outcome := 'BLOCKED';
    RETURN NEXT;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT 'CANCEL_BY_SHOP', NULL, false, 0::BIGINT, 0::BIGINT, 0::BIGINT, t.id, t.event_id,
      t.section_id, t.user_id, t.entry_seq, t.strategy, t.status, t.seat_count, t.seats, t.price,
      t.currency, t.expires_at, t.created_at, t.confirmed_at, t.ended_at, t.confirmation_code
    FROM reservations t WHERE t.id = a_id AND t.status = 'CONFIRMED' AND t.user_id = a_user;
  IF NOT FOUND THEN
    RETURN QUERY
      SELECT * FROM ledger_outcome_1('CANCEL', ARRAY[a_id], a_user, 0, a_now, '', a_wait);
  END IF;
END $$;

-- A live reservation becomes a_final; buyer, seats, row and fact follow. Returns what its buyer still
-- holds of the event. A seat remembers the hold that gave it up. (Nodes of older versions call this
-- function, too.)
CREATE OR REPLACE FUNCTION ledger_become_1(r reservations, a_final TEXT, a_now BIGINT, a_code TEXT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
  still_held BIGINT;
  changed BIGINT;
BEGIN
  UPDATE buyers b
    SET seats = b.seats - CASE WHEN a_final = 'CONFIRMED' THEN 0 ELSE r.seat_count END,
      held = b.held - CASE WHEN r.status = 'HELD' THEN r.seat_count ELSE 0 END
    WHERE b.event_id = r.event_id AND b.user_id = r.user_id
    RETURNING b.held INTO still_held;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'a reservation without a buyer' USING ERRCODE = 'AD002';
  END IF;
  UPDATE seats s
    SET state = CASE WHEN a_final = 'CONFIRMED' THEN 'CONFIRMED' ELSE 'AVAILABLE' END,
      reservation_id = CASE WHEN a_final = 'CONFIRMED' THEN s.reservation_id END,
      version = s.version + 1,
      given_up = CASE WHEN r.status = 'HELD' AND a_final <> 'CONFIRMED' THEN r.id END
    FROM unnest(string_to_array(r.seats, ',')::BIGINT[]) AS w(seat_no)
    CROSS JOIN LATERAL (
      SELECT t.ctid AS place FROM seats t
      WHERE t.section_id = r.section_id AND t.seat_no = w.seat_no OFFSET 0) o
    WHERE s.ctid = o.place AND s.reservation_id = r.id AND s.state = r.status;
  GET DIAGNOSTICS changed = ROW_COUNT;
  IF changed <> r.seat_count THEN
    RAISE EXCEPTION 'a reservation without its seats' USING ERRCODE = 'AD002';
  END IF;
  UPDATE reservations t
    SET status = a_final,
      confirmed_at = CASE WHEN a_final = 'CONFIRMED' THEN a_now ELSE t.confirmed_at END,
      confirmation_code = CASE WHEN a_final = 'CONFIRMED' THEN a_code ELSE t.confirmation_code END,
      ended_at = CASE WHEN a_final = 'CONFIRMED' THEN NULL ELSE a_now END
    WHERE t.id = r.id AND t.status = r.status;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'a reservation has changed meanwhile' USING ERRCODE = 'AD001';
  END IF;
  INSERT INTO facts(kind, event_id, section_id, reservation_id, user_id, seat_count, at)
    VALUES (a_final, r.event_id, r.section_id, r.id, r.user_id, r.seat_count, a_now);
  RETURN still_held;
END $$;

-- Holds that do not depend on each other and that only their seats can refuse: those whose seats are
-- free are written at once, as if they had come first, which makes no difference to the others.
-- Returns which these are. Where a stay has a limited number of holds, they are counted one by one;
-- so are the holds of named seats that a user has given up.
CREATE FUNCTION ledger_hold_together_3(
  a_ids UUID[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[], a_entries BIGINT[],
  a_strategies TEXT[], a_seats TEXT[], a_prices BIGINT[], a_currencies TEXT[], a_expires BIGINT[],
  a_created BIGINT[], a_versions TEXT[], a_fences TEXT[],
  a_key_users TEXT[], a_routes TEXT[], a_keys TEXT[], a_digests BYTEA[], a_named BIGINT[]
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
      AND (SELECT e.max_per_user FROM events e
           WHERE e.id = a.event_id AND e.max_holds_per_stay = 0)
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
             AND s.fence <= coalesce(a.fence, s.fence)
             AND (a.named = 0 OR s.given_up IS NULL) END) AS is_free
    FROM (
      SELECT t.n, t.section_id, t.named, w.seat_no, w.version, w.fence,
        row_number() OVER (PARTITION BY t.section_id, w.seat_no ORDER BY t.n) AS seat_rank
      FROM unnest(a_sections, a_seats, a_versions, a_fences, a_named)
        WITH ORDINALITY AS t(section_id, seats, versions, fences, named, n)
      CROSS JOIN LATERAL unnest(string_to_array(t.seats, ',')::BIGINT[],
        string_to_array(t.versions, ',')::BIGINT[], string_to_array(t.fences, ',')::BIGINT[])
        AS w(seat_no, version, fence)) a
    LEFT JOIN LATERAL (
      SELECT t.state, t.version, t.fence, t.given_up FROM seats t
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
CREATE FUNCTION ledger_hold_3(
  a_ids UUID[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[], a_entries BIGINT[],
  a_strategies TEXT[], a_seats TEXT[], a_prices BIGINT[], a_currencies TEXT[], a_expires BIGINT[],
  a_created BIGINT[], a_versions TEXT[], a_fences TEXT[],
  a_key_users TEXT[], a_routes TEXT[], a_keys TEXT[], a_digests BYTEA[], a_named BIGINT[],
  a_wait BIGINT
) RETURNS TABLE(
  place BIGINT, outcome TEXT, held BOOLEAN, became TEXT, refused TEXT, replayed UUID, free_at BIGINT
) LANGUAGE plpgsql AS $$
DECLARE
  written BOOLEAN[];
  h RECORD;
  k RECORD;
  old RECORD;
  room RECORD;
  judged RECORD;
  has BIGINT;
  holds_of BIGINT;
  changed BIGINT;
  wanted BIGINT[];
  fences BIGINT[];
  count_of BIGINT;
BEGIN
  IF a_wait = 0 AND cardinality(a_ids) > 1 THEN
    written := ledger_hold_together_3(a_ids, a_events, a_sections, a_users, a_entries, a_strategies,
      a_seats, a_prices, a_currencies, a_expires, a_created, a_versions, a_fences, a_key_users,
      a_routes, a_keys, a_digests, a_named);
    RETURN QUERY
      SELECT w.n, 'OK', true, 'HELD', '', NULL::UUID, 0::BIGINT
      FROM unnest(written) WITH ORDINALITY AS w(is_so, n) WHERE w.is_so;
  END IF;

  FOR h IN
    SELECT * FROM unnest(a_ids, a_events, a_sections, a_users, a_entries, a_strategies, a_seats,
      a_prices, a_currencies, a_expires, a_created, a_versions, a_fences, a_key_users, a_routes,
      a_keys, a_digests, a_named)
      WITH ORDINALITY AS a(id, event_id, section_id, user_id, entry_seq, strategy, seats, price,
      currency, expires_at, created_at, versions, fences, key_user, route, key, digest, named,
      n)
    WHERE written[n] IS NOT TRUE ORDER BY n
  LOOP
    place := h.n;
    outcome := 'OK';
    held := false;
    became := 'HELD';
    refused := '';
    replayed := NULL;
    free_at := 0;
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

    SELECT c.capacity, c.mode = 'seat' AS ledger_decides, e.max_per_user,
        e.max_holds_per_stay AS max_holds, e.rehold_s * 1000 AS rehold_ms INTO room
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
    -- Where the holds are counted, the row is changed below.
    IF a_wait = 1 AND room.max_holds > 0 THEN
      PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq
        FOR NO KEY UPDATE;
    ELSIF a_wait = 1 THEN
      PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq FOR SHARE;
    ELSE
      IF room.max_holds > 0 THEN
        PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq
          FOR NO KEY UPDATE SKIP LOCKED;
      ELSE
        PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq
          FOR SHARE SKIP LOCKED;
      END IF;
      IF NOT FOUND THEN
        PERFORM FROM queue_entries q WHERE q.event_id = h.event_id AND q.seq = h.entry_seq;
        IF FOUND THEN
          outcome := 'BLOCKED';
          RETURN NEXT;
          CONTINUE;
        END IF;
      END IF;
    END IF;
    SELECT q.holds INTO holds_of FROM queue_entries q
      WHERE q.event_id = h.event_id AND q.seq = h.entry_seq AND q.user_id = h.user_id
        AND q.status = 'ACTIVE' AND q.active_expires_at > h.created_at;
    IF NOT FOUND OR (room.max_holds > 0 AND holds_of >= room.max_holds) THEN
      outcome := CASE WHEN FOUND THEN 'HOLD_LIMIT' ELSE 'NOT_ACTIVE' END;
      PERFORM ledger_hold_unmade_1(h.id, h.key_user, h.route, h.key);
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
        CASE WHEN s.fence > w.fence THEN 4
             WHEN coalesce(s.version, 0) <> w.version THEN 3
             WHEN w.seat_no > room.capacity OR s.state <> 'AVAILABLE' THEN 2
             WHEN g.ended_at IS NOT NULL THEN 1
             ELSE 0 END AS priority, g.ended_at
      FROM unnest(wanted, string_to_array(h.versions, ',')::BIGINT[], fences)
        AS w(seat_no, version, fence)
      LEFT JOIN LATERAL (
        SELECT t.* FROM seats t WHERE t.section_id = h.section_id AND t.seat_no = w.seat_no
        OFFSET 0) s ON true
      LEFT JOIN LATERAL (
        SELECT t.ended_at FROM reservations t
        WHERE h.named = 1 AND room.rehold_ms > 0 AND t.id = s.given_up AND t.user_id = h.user_id
          AND t.ended_at > h.created_at - room.rehold_ms OFFSET 0) g ON true)
    SELECT max(priority) AS worst, max(ended_at) AS last_given_up,
      count(*) FILTER (WHERE has_row) AS rows_there,
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
      outcome := (ARRAY['SEAT_GIVEN_UP', 'SEAT_TAKEN', 'CONFLICT', 'LOCK_LOST'])[judged.worst];
      IF judged.worst = 1 THEN
        free_at := judged.last_given_up + room.rehold_ms;
      END IF;
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
    IF room.max_holds > 0 THEN
      UPDATE queue_entries q SET holds = q.holds + 1
        WHERE q.event_id = h.event_id AND q.seq = h.entry_seq;
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
