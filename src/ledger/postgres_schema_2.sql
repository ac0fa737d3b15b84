-- The functions that write records: one round trip for many of them. Each decides first and writes
-- then, so that a refusal has nothing to undo. If another node has changed the rows in between, the
-- function fails with AD001, and the record is tried again. If rows contradict each other, it fails
-- with AD002.
--
-- Their names end with a number: a function that changes gets a new one, for nodes of both versions
-- may run at once.
--
-- a_wait is 0 for the batch writer, which never waits for a lock: a record that needs a row which
-- another session has locked is BLOCKED, changes nothing, and is passed to the pool that may wait.
--
-- Statements are planned once, often when the tables are almost empty: what the planner may join,
-- it then joins by reading a whole section or queue, however large it has become. So rows are
-- looked up by their whole keys in subqueries that stay such (OFFSET 0, FOR UPDATE), and are
-- changed by where they are (ctid) once they are locked.

-- Entries, in the order of their numbers; what each closes first. Most are new, and are written all
-- at once; those of a user who comes twice in a batch are then written one by one.
CREATE FUNCTION ledger_enter_1(
  a_events BIGINT[], a_seqs BIGINT[], a_users TEXT[], a_lanes BIGINT[], a_statuses TEXT[],
  a_joined BIGINT[], a_expires BIGINT[]
) RETURNS TABLE(is_there BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE
  i RECORD;
BEGIN
  IF EXISTS (SELECT FROM unnest(a_events) AS a(id)
             WHERE NOT EXISTS (SELECT FROM events e WHERE e.id = a.id)) THEN
    RAISE EXCEPTION 'an entry of no event' USING ERRCODE = 'AD002';
  END IF;

  PERFORM FROM (
      SELECT a.event_id, o.seq FROM unnest(a_events, a_seqs, a_users) AS a(event_id, seq, user_id)
      CROSS JOIN LATERAL (
        SELECT q.seq FROM queue_entries q WHERE q.event_id = a.event_id AND q.user_id = a.user_id
          AND q.status IN ('WAITING','ACTIVE') OFFSET 0) o
      WHERE o.seq < a.seq ORDER BY a.event_id, o.seq) a
    CROSS JOIN LATERAL (
      SELECT FROM queue_entries q WHERE q.event_id = a.event_id AND q.seq = a.seq FOR UPDATE) q;
  IF FOUND THEN
    UPDATE queue_entries q SET status = 'EXPIRED', finished_at = a.joined_at
      FROM (
        SELECT o.place, a.joined_at
        FROM unnest(a_events, a_seqs, a_users, a_joined) AS a(event_id, seq, user_id, joined_at)
        CROSS JOIN LATERAL (
          SELECT t.ctid AS place, t.seq FROM queue_entries t
          WHERE t.event_id = a.event_id AND t.user_id = a.user_id
            AND t.status IN ('WAITING','ACTIVE') OFFSET 0) o
        WHERE o.seq < a.seq AND (SELECT true FROM queue_entries t
          WHERE t.event_id = a.event_id AND t.seq = a.seq) IS NULL) a
      WHERE q.ctid = a.place;
  END IF;

  INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at, admitted_at,
    active_expires_at)
    SELECT a.event_id, a.seq, a.user_id, a.lane, a.status, a.joined_at,
      CASE WHEN a.status = 'ACTIVE' THEN a.joined_at END,
      CASE WHEN a.status = 'ACTIVE' THEN a.expires_at END
    FROM unnest(a_events, a_seqs, a_users, a_lanes, a_statuses, a_joined, a_expires)
      WITH ORDINALITY AS a(event_id, seq, user_id, lane, status, joined_at, expires_at, n)
    ORDER BY a.event_id, a.seq, a.n
    ON CONFLICT DO NOTHING;

  FOR i IN
    SELECT a.* FROM unnest(a_events, a_seqs, a_users, a_lanes, a_statuses, a_joined, a_expires)
      WITH ORDINALITY AS a(event_id, seq, user_id, lane, status, joined_at, expires_at, n)
    WHERE NOT EXISTS (SELECT FROM queue_entries t WHERE t.event_id = a.event_id AND t.seq = a.seq)
    ORDER BY a.n
  LOOP
    UPDATE queue_entries q SET status = 'EXPIRED', finished_at = i.joined_at
      WHERE q.event_id = i.event_id AND q.user_id = i.user_id
        AND q.status IN ('WAITING','ACTIVE') AND q.seq < i.seq;
    INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at, admitted_at,
      active_expires_at)
      VALUES (i.event_id, i.seq, i.user_id, i.lane, i.status, i.joined_at,
        CASE WHEN i.status = 'ACTIVE' THEN i.joined_at END,
        CASE WHEN i.status = 'ACTIVE' THEN i.expires_at END)
      ON CONFLICT DO NOTHING;
  END LOOP;

  RETURN QUERY
    SELECT q.seq IS NOT NULL AND q.user_id = a.user_id AND q.status <> 'VOID'
    FROM unnest(a_events, a_seqs, a_users) WITH ORDINALITY AS a(event_id, seq, user_id, n)
    LEFT JOIN queue_entries q ON q.event_id = a.event_id AND q.seq = a.seq
    ORDER BY a.n;
END $$;

-- Whether the entry is not there and never will be.
CREATE FUNCTION ledger_enter_void_1(a_event BIGINT, a_seq BIGINT, a_now BIGINT)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO queue_entries(event_id, seq, user_id, lane, status, joined_at, finished_at)
    SELECT e.id, a_seq, '', 0, 'VOID', a_now, a_now FROM events e WHERE e.id = a_event
    ON CONFLICT DO NOTHING;
  RETURN NOT EXISTS (SELECT FROM queue_entries q
                     WHERE q.event_id = a_event AND q.seq = a_seq AND q.status <> 'VOID');
END $$;

CREATE FUNCTION ledger_lock_entries_1(a_event BIGINT, a_seqs BIGINT[])
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM (SELECT DISTINCT u.seq FROM unnest(a_seqs) AS u(seq) ORDER BY u.seq) a
    CROSS JOIN LATERAL (
      SELECT FROM queue_entries q WHERE q.event_id = a_event AND q.seq = a.seq FOR UPDATE) q;
END $$;

CREATE FUNCTION ledger_admit_1(a_event BIGINT, a_seqs BIGINT[], a_expires BIGINT[], a_now BIGINT)
RETURNS TABLE(kept BOOLEAN) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ledger_lock_entries_1(a_event, a_seqs);
  UPDATE queue_entries q
    SET status = 'ACTIVE', admitted_at = a_now, active_expires_at = a.expires_at
    FROM (
      SELECT DISTINCT ON (u.seq) o.place, u.expires_at
      FROM unnest(a_seqs, a_expires) WITH ORDINALITY AS u(seq, expires_at, n)
      CROSS JOIN LATERAL (
        SELECT t.ctid AS place, t.status FROM queue_entries t
        WHERE t.event_id = a_event AND t.seq = u.seq OFFSET 0) o
      WHERE o.status = 'WAITING' ORDER BY u.seq, u.n) a
    WHERE q.ctid = a.place;
  RETURN QUERY
    SELECT coalesce((SELECT q.status = 'ACTIVE' AND q.active_expires_at = a.expires_at
      FROM queue_entries q WHERE q.event_id = a_event AND q.seq = a.seq), false)
    FROM unnest(a_seqs, a_expires) WITH ORDINALITY AS a(seq, expires_at, n) ORDER BY a.n;
END $$;

-- Ends entries; returns their places in the list. Only admitted entries complete.
CREATE FUNCTION ledger_end_1(a_event BIGINT, a_seqs BIGINT[], a_final TEXT, a_now BIGINT)
RETURNS TABLE(place BIGINT) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ledger_lock_entries_1(a_event, a_seqs);
  RETURN QUERY
    UPDATE queue_entries q SET status = a_final, finished_at = a_now
    FROM (
      SELECT o.place, min(u.n) AS n FROM unnest(a_seqs) WITH ORDINALITY AS u(seq, n)
      CROSS JOIN LATERAL (
        SELECT t.ctid AS place, t.status FROM queue_entries t
        WHERE t.event_id = a_event AND t.seq = u.seq OFFSET 0) o
      WHERE o.status = 'ACTIVE' OR (o.status = 'WAITING' AND a_final <> 'COMPLETED')
      GROUP BY o.place) a
    WHERE q.ctid = a.place
    RETURNING a.n;
END $$;

-- A hold may be refused because of itself: another node has made it since, for a request with the
-- same id or the same key. Then it is not refused, but tried again, and found.
CREATE FUNCTION ledger_hold_unmade_1(a_id UUID, a_user TEXT, a_route TEXT, a_key TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM reservations r WHERE r.id = a_id)
     OR EXISTS (SELECT FROM idempotency i
                WHERE i.user_id = a_user AND i.route = a_route AND i.key = a_key) THEN
    RAISE EXCEPTION 'the hold was made meanwhile' USING ERRCODE = 'AD001';
  END IF;
END $$;

-- Holds that do not depend on each other and that only their seats can refuse: those whose seats are
-- free are written at once, as if they had come first, which makes no difference to the others.
-- Returns which these are.
CREATE FUNCTION ledger_hold_together_1(
  a_ids UUID[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[], a_entries BIGINT[],
  a_strategies TEXT[], a_seats TEXT[], a_prices BIGINT[], a_currencies TEXT[], a_expires BIGINT[],
  a_created BIGINT[], a_versions TEXT[], a_fences TEXT[],
  a_key_users TEXT[], a_routes TEXT[], a_keys TEXT[], a_digests BYTEA[], a_answers BIGINT[],
  a_responses TEXT[]
) RETURNS BOOLEAN[] LANGUAGE plpgsql AS $$
DECLARE
  fit BOOLEAN[];
  is_written BOOLEAN;
BEGIN
  -- Holds that nothing but their seats can refuse. The holds of one user count together.
  SELECT array_agg(coalesce(
      a.id_turn = 1 AND (a.key IS NULL OR a.key_turn = 1)
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
      SELECT u.*, row_number() OVER (PARTITION BY u.id ORDER BY u.n) AS id_turn,
        row_number() OVER (PARTITION BY u.key_user, u.route, u.key ORDER BY u.n) AS key_turn,
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
    SELECT a.n, bool_and(fit[a.n] AND a.turn = 1 AND CASE WHEN s.state IS NULL
        THEN coalesce(a.version, 0) = 0 AND (SELECT true FROM seats t
             WHERE t.section_id = a.section_id AND t.seat_no = a.seat_no) IS NULL
        ELSE s.state = 'AVAILABLE' AND s.version = coalesce(a.version, s.version)
             AND s.fence <= coalesce(a.fence, s.fence) END) AS is_free
    FROM (
      SELECT t.n, t.section_id, w.seat_no, w.version, w.fence,
        row_number() OVER (PARTITION BY t.section_id, w.seat_no ORDER BY t.n) AS turn
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
      a_currencies, a_expires, a_created, a_fences, a_key_users, a_routes, a_keys, a_digests,
      a_answers, a_responses) WITH ORDINALITY AS t(id, event_id, section_id, user_id, entry_seq,
      strategy, seats, price, currency, expires_at, created_at, fences, key_user, route, key,
      digest, answer, response, n)
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
    INSERT INTO idempotency(user_id, route, key, body_digest, status, response, created_at)
      SELECT t.key_user, t.route, t.key, t.digest, t.answer, t.response, t.created_at
      FROM held t WHERE t.key IS NOT NULL ORDER BY t.key_user, t.route, t.key
      ON CONFLICT DO NOTHING RETURNING 1
  )
  SELECT (SELECT count(*) FROM buyer) = (SELECT count(*) FROM want)
    AND (SELECT count(*) FROM reservation) = (SELECT count(*) FROM held)
    AND (SELECT count(*) FROM seat) = (SELECT coalesce(sum(t.seat_count), 0) FROM held t)
    AND (SELECT count(*) FROM key) = (SELECT count(t.key) FROM held t) INTO is_written;
  IF NOT is_written THEN
    RAISE EXCEPTION 'something was taken meanwhile' USING ERRCODE = 'AD001';
  END IF;
  RETURN fit;
END $$;

-- Holds: most at once, the others one after the other. One row for each, in the order in which they
-- were written; `place` is its index in the lists. The caller updates the counts of the sections
-- (ledger_tally_1).
CREATE FUNCTION ledger_hold_1(
  a_ids UUID[], a_events BIGINT[], a_sections BIGINT[], a_users TEXT[], a_entries BIGINT[],
  a_strategies TEXT[], a_seats TEXT[], a_prices BIGINT[], a_currencies TEXT[], a_expires BIGINT[],
  a_created BIGINT[], a_versions TEXT[], a_fences TEXT[],
  a_key_users TEXT[], a_routes TEXT[], a_keys TEXT[], a_digests BYTEA[], a_answers BIGINT[],
  a_responses TEXT[], a_wait BIGINT
) RETURNS TABLE(
  place BIGINT, outcome TEXT, held BOOLEAN, became TEXT, refused TEXT,
  replayed_status BIGINT, replayed_text TEXT
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
    written := ledger_hold_together_1(a_ids, a_events, a_sections, a_users, a_entries, a_strategies,
      a_seats, a_prices, a_currencies, a_expires, a_created, a_versions, a_fences, a_key_users,
      a_routes, a_keys, a_digests, a_answers, a_responses);
    RETURN QUERY
      SELECT w.n, 'OK', true, 'HELD', '', NULL::BIGINT, NULL::TEXT
      FROM unnest(written) WITH ORDINALITY AS w(is_so, n) WHERE w.is_so;
  END IF;

  FOR h IN
    SELECT * FROM unnest(a_ids, a_events, a_sections, a_users, a_entries, a_strategies, a_seats,
      a_prices, a_currencies, a_expires, a_created, a_versions, a_fences, a_key_users, a_routes,
      a_keys, a_digests, a_answers, a_responses)
      WITH ORDINALITY AS a(id, event_id, section_id, user_id, entry_seq, strategy, seats, price,
      currency, expires_at, created_at, versions, fences, key_user, route, key, digest, answer,
      response, n)
    WHERE written[n] IS NOT TRUE ORDER BY n
  LOOP
    place := h.n;
    outcome := 'OK';
    held := false;
    became := 'HELD';
    refused := '';
    replayed_status := NULL;
    replayed_text := NULL;
    wanted := string_to_array(h.seats, ',')::BIGINT[];
    fences := string_to_array(h.fences, ',')::BIGINT[];
    count_of := cardinality(wanted);

    -- The key may have been used.
    IF h.key IS NOT NULL THEN
      SELECT i.body_digest, i.status, i.response INTO k FROM idempotency i
        WHERE i.user_id = h.key_user AND i.route = h.route AND i.key = h.key;
      IF FOUND THEN
        IF k.body_digest = h.digest THEN
          replayed_status := k.status;
          replayed_text := k.response;
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
             ELSE 0 END AS badness
      FROM unnest(wanted, string_to_array(h.versions, ',')::BIGINT[], fences)
        AS w(seat_no, version, fence)
      LEFT JOIN LATERAL (
        SELECT t.* FROM seats t WHERE t.section_id = h.section_id AND t.seat_no = w.seat_no
        OFFSET 0) s ON true)
    SELECT max(badness) AS worst, count(*) FILTER (WHERE has_row) AS rows_there,
      string_agg(seat_no::TEXT, ',' ORDER BY seat_no)
        FILTER (WHERE badness = (SELECT max(badness) FROM each)) AS worst_seats
      INTO judged FROM each;
    IF changed < judged.rows_there THEN
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
      RAISE EXCEPTION 'the buyer has bought meanwhile' USING ERRCODE = 'AD001';
    END IF;
    INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy, status,
      seat_count, seats, price, currency, expires_at, created_at)
      VALUES (h.id, h.event_id, h.section_id, h.user_id, h.entry_seq, h.strategy, 'HELD',
        count_of, h.seats, h.price, h.currency, h.expires_at, h.created_at)
      ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'the id was taken meanwhile' USING ERRCODE = 'AD001';
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
      RAISE EXCEPTION 'a seat was taken meanwhile' USING ERRCODE = 'AD001';
    END IF;
    INSERT INTO facts(kind, event_id, section_id, reservation_id, user_id, seat_count, at)
      VALUES ('HELD', h.event_id, h.section_id, h.id, h.user_id, count_of, h.created_at);
    IF h.key IS NOT NULL THEN
      INSERT INTO idempotency(user_id, route, key, body_digest, status, response, created_at)
        VALUES (h.key_user, h.route, h.key, h.digest, h.answer, h.response, h.created_at)
        ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'the key was used meanwhile' USING ERRCODE = 'AD001';
      END IF;
    END IF;
    held := true;
    RETURN NEXT;
  END LOOP;
END $$;

-- Whether the reservation is not there and never will be. A late hold in a removed section finds no
-- section.
CREATE FUNCTION ledger_hold_void_1(a_id UUID, a_event BIGINT, a_section BIGINT, a_now BIGINT)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO reservations(id, event_id, section_id, user_id, entry_seq, strategy, status,
    seat_count, seats, price, currency, expires_at, created_at, ended_at)
    SELECT a_id, a_event, a_section, '', 0, '', 'VOID', 0, '', 0, '', a_now, a_now, a_now
    FROM sections c WHERE c.id = a_section AND c.event_id = a_event
    ON CONFLICT DO NOTHING;
  RETURN NOT EXISTS (SELECT FROM reservations r WHERE r.id = a_id AND r.status <> 'VOID');
END $$;

-- Locks the rows of the live ones of these reservations: buyers, reservations, seats. False: another
-- session has locked one of them, and this call must not wait.
CREATE FUNCTION ledger_lock_1(a_ids UUID[], a_wait BIGINT)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
  one RECORD;
  there BIGINT;
  locked BIGINT;
BEGIN
  -- The usual case: one reservation, whose rows are not locked.
  IF a_wait = 0 AND cardinality(a_ids) = 1 THEN
    SELECT t.event_id, t.user_id, t.section_id, t.seat_count,
      string_to_array(t.seats, ',')::BIGINT[] AS numbers INTO one
      FROM reservations t WHERE t.id = a_ids[1] AND t.status IN ('HELD','CONFIRMED');
    IF NOT FOUND THEN
      RETURN true;
    END IF;
    PERFORM FROM buyers b WHERE b.event_id = one.event_id AND b.user_id = one.user_id
      FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      PERFORM FROM reservations t WHERE t.id = a_ids[1] FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        RETURN false;
      END IF;
      PERFORM FROM unnest(one.numbers) AS w(seat_no) CROSS JOIN LATERAL (
        SELECT FROM seats s WHERE s.section_id = one.section_id AND s.seat_no = w.seat_no
        FOR UPDATE SKIP LOCKED) s;
      GET DIAGNOSTICS locked = ROW_COUNT;
      IF locked = one.seat_count THEN
        RETURN true;
      END IF;
    END IF;
  END IF;

  IF a_wait = 1 THEN
    PERFORM FROM buyers b WHERE (b.event_id, b.user_id) IN (
        SELECT r.event_id, r.user_id FROM reservations r
        WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED'))
      ORDER BY b.event_id, b.user_id FOR UPDATE;
    PERFORM FROM reservations r WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED')
      ORDER BY r.id FOR UPDATE;
    PERFORM FROM (
        SELECT r.section_id, w.seat_no FROM reservations r
        CROSS JOIN LATERAL unnest(string_to_array(r.seats, ',')::BIGINT[]) AS w(seat_no)
        WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED')
        ORDER BY r.section_id, w.seat_no) w
      CROSS JOIN LATERAL (
        SELECT FROM seats s WHERE s.section_id = w.section_id AND s.seat_no = w.seat_no
        FOR UPDATE) s;
    RETURN true;
  END IF;

  SELECT count(DISTINCT (r.event_id, r.user_id)) INTO there FROM reservations r
    WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED');
  IF there = 0 THEN
    RETURN true;
  END IF;
  PERFORM FROM buyers b WHERE (b.event_id, b.user_id) IN (
      SELECT r.event_id, r.user_id FROM reservations r
      WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED'))
    ORDER BY b.event_id, b.user_id FOR UPDATE SKIP LOCKED;
  GET DIAGNOSTICS locked = ROW_COUNT;
  IF locked < there AND locked < (
      SELECT count(*) FROM buyers b WHERE (b.event_id, b.user_id) IN (
        SELECT r.event_id, r.user_id FROM reservations r
        WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED'))) THEN
    RETURN false;
  END IF;

  SELECT count(*) INTO there FROM reservations r
    WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED');
  PERFORM FROM reservations r WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED')
    ORDER BY r.id FOR UPDATE SKIP LOCKED;
  GET DIAGNOSTICS locked = ROW_COUNT;
  IF locked < there THEN
    RETURN false;
  END IF;

  RETURN NOT EXISTS (
    SELECT FROM reservations r
    CROSS JOIN LATERAL unnest(string_to_array(r.seats, ',')::BIGINT[]) AS w(seat_no)
    LEFT JOIN LATERAL (
      SELECT true AS is_locked FROM seats s
      WHERE s.section_id = r.section_id AND s.seat_no = w.seat_no FOR UPDATE SKIP LOCKED) s ON true
    WHERE r.id = ANY(a_ids) AND r.status IN ('HELD','CONFIRMED') AND s.is_locked IS NULL
      AND (SELECT true FROM seats t
           WHERE t.section_id = r.section_id AND t.seat_no = w.seat_no));
END $$;

-- A live reservation becomes a_final; buyer, seats, row and fact follow. Returns what its buyer still
-- holds of the event.
CREATE FUNCTION ledger_become_1(r reservations, a_final TEXT, a_now BIGINT, a_code TEXT)
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
      version = s.version + 1
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

-- Changes of holds. CONFIRM and CANCEL change one reservation of its user; EXPIRE many; LEAVE those
-- that a_user holds in a_event. Returns one row for each: the result, what changed, and the change of
-- its section's counts; and for CONFIRM and CANCEL the reservation as it is now.
CREATE FUNCTION ledger_outcome_1(
  a_act TEXT, a_ids UUID[], a_user TEXT, a_event BIGINT, a_now BIGINT, a_code TEXT, a_wait BIGINT
) RETURNS TABLE(
  outcome TEXT, became TEXT, completed BOOLEAN, of_section BIGINT, held_by BIGINT,
  confirmed_by BIGINT, id UUID, event_id BIGINT, section_id BIGINT, user_id TEXT, entry_seq BIGINT,
  strategy TEXT, status TEXT, seat_count BIGINT, seats TEXT, price BIGINT, currency TEXT,
  expires_at BIGINT, created_at BIGINT, confirmed_at BIGINT, ended_at BIGINT,
  confirmation_code TEXT
) LANGUAGE plpgsql AS $$
DECLARE
  an_id UUID;
  r reservations;
  is_over BOOLEAN;
  still_held BIGINT;
BEGIN
  IF NOT ledger_lock_1(a_ids, a_wait) THEN
    outcome := 'BLOCKED';
    RETURN NEXT;
    RETURN;
  END IF;
  FOREACH an_id IN ARRAY a_ids LOOP
    outcome := 'OK';
    became := NULL;
    completed := false;
    of_section := 0;
    held_by := 0;
    confirmed_by := 0;
    SELECT t.* INTO r FROM reservations t WHERE t.id = an_id AND t.status <> 'VOID';
    is_over := r.status = 'HELD' AND r.expires_at <= a_now;

    IF a_act = 'EXPIRE' THEN
      IF is_over THEN
        became := 'EXPIRED';
      END IF;
    ELSIF a_act = 'LEAVE' THEN
      IF r.status = 'HELD' AND r.event_id = a_event AND r.user_id = a_user THEN
        became := 'CANCELLED';
      END IF;
    ELSIF r.id IS NULL THEN
      outcome := 'RESERVATION_NOT_FOUND';
    ELSIF r.user_id <> a_user THEN
      outcome := 'NOT_YOURS';
    ELSIF r.status = 'EXPIRED' OR is_over THEN
      outcome := 'HOLD_EXPIRED';
      IF is_over THEN
        became := 'EXPIRED';
      END IF;
    ELSIF a_act = 'CONFIRM' THEN
      IF r.status = 'CANCELLED' THEN
        outcome := 'RESERVATION_ENDED';
      ELSIF r.status = 'HELD' THEN
        became := 'CONFIRMED';
      END IF;
    ELSIF r.status IN ('HELD','CONFIRMED') THEN
      became := 'CANCELLED';
    END IF;

    IF became IS NOT NULL THEN
      still_held := ledger_become_1(r, became, a_now, a_code);
      of_section := r.section_id;
      held_by := CASE WHEN r.status = 'HELD' THEN -r.seat_count ELSE 0 END;
      confirmed_by := CASE WHEN became = 'CONFIRMED' THEN r.seat_count
                           WHEN r.status = 'CONFIRMED' THEN -r.seat_count ELSE 0 END;
    END IF;
    -- The purchase is done when the user holds nothing else; then the place is COMPLETED. (An entry
    -- with an admission time and no end is ACTIVE.)
    IF became = 'CONFIRMED' AND still_held = 0 THEN
      UPDATE queue_entries q SET status = 'COMPLETED', finished_at = a_now
        WHERE q.event_id = r.event_id AND q.seq = r.entry_seq AND q.finished_at IS NULL
          AND q.active_expires_at > a_now;
      completed := FOUND;
    END IF;

    RETURN QUERY
      SELECT outcome, became, completed, of_section, held_by, confirmed_by, t.id, t.event_id,
        t.section_id, t.user_id, t.entry_seq, t.strategy, t.status, t.seat_count, t.seats, t.price,
        t.currency, t.expires_at, t.created_at, t.confirmed_at, t.ended_at, t.confirmation_code
      FROM (SELECT) AS one LEFT JOIN reservations t
        ON t.id = an_id AND t.status <> 'VOID' AND t.user_id = a_user
        AND a_act IN ('CONFIRM','CANCEL');
  END LOOP;
END $$;

-- A user leaves: the user's holds are cancelled and the entries end, all together or not at all.
-- Returns rows CANCELLED and ENDED with their places in the lists, or one row BLOCKED.
CREATE FUNCTION ledger_leave_1(
  a_event BIGINT, a_seqs BIGINT[], a_final TEXT, a_now BIGINT, a_user TEXT, a_cancels UUID[],
  a_wait BIGINT
) RETURNS TABLE(did TEXT, place BIGINT, of_section BIGINT, held_by BIGINT) LANGUAGE plpgsql AS $$
BEGIN
  IF NOT ledger_lock_1(a_cancels, a_wait) THEN
    did := 'BLOCKED';
    RETURN NEXT;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT 'CANCELLED', row_number() OVER (), o.of_section, o.held_by
    FROM ledger_outcome_1('LEAVE', a_cancels, a_user, a_event, a_now, '', a_wait) o;
  RETURN QUERY
    SELECT 'ENDED', e.place, 0::BIGINT, 0::BIGINT
    FROM ledger_end_1(a_event, a_seqs, a_final, a_now) e;
END $$;

-- Updates the counts of sections by the changes of a transaction, as its last step, because every
-- transaction needs these rows. a_highest is the highest seat that was taken (0: none was),
-- a_by_ledger and a_by_hot are how many holds need a section of mode `seat`, or of another one. If the section
-- was removed, has shrunk, is full or has another mode now, the transaction fails and is tried again.
CREATE FUNCTION ledger_tally_1(
  a_sections BIGINT[], a_held BIGINT[], a_confirmed BIGINT[], a_highest BIGINT[],
  a_by_ledger BIGINT[], a_by_hot BIGINT[]
) RETURNS TABLE(capacity BIGINT, taken_before BIGINT, is_removed BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE
  a RECORD;
BEGIN
  FOR a IN
    SELECT * FROM unnest(a_sections, a_held, a_confirmed, a_highest, a_by_ledger, a_by_hot)
      AS u(id, held, confirmed, highest, by_ledger, by_hot) ORDER BY id
  LOOP
    UPDATE sections c SET held = c.held + a.held, confirmed = c.confirmed + a.confirmed
      WHERE c.id = a.id AND (a.highest = 0 OR (c.removed_version IS NULL
        AND c.capacity >= a.highest
        AND CASE c.mode WHEN 'seat' THEN a.by_hot ELSE a.by_ledger END = 0
        AND c.held + c.confirmed + a.held + a.confirmed <= c.capacity))
      RETURNING c.capacity, c.held + c.confirmed - a.held - a.confirmed,
        c.removed_version IS NOT NULL INTO capacity, taken_before, is_removed;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'a section has changed meanwhile' USING ERRCODE = 'AD001';
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;
