-- Functions that replace those of migration 2 under their names: their arguments and results are the
-- same, and nodes of either version may call them.

-- Holds: most at once, the others one after the other. One row for each, in the order in which they
-- were written; `place` is its index in the lists. The caller updates the counts of the sections
-- (ledger_tally_1).
CREATE OR REPLACE FUNCTION ledger_hold_1(
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
      INSERT INTO idempotency(user_id, route, key, body_digest, status, response, created_at)
        VALUES (h.key_user, h.route, h.key, h.digest, h.answer, h.response, h.created_at)
        ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'a concurrent transaction used the key' USING ERRCODE = 'AD001';
      END IF;
    END IF;
    held := true;
    RETURN NEXT;
  END LOOP;
END $$;

-- Settings that the nodes of a cluster share. 'ledger' is the name of this ledger, which the hot
-- store has too; the others are of the node that started last (postgres_cluster.c): fingerprints of its
-- keys, and its time zone.
CREATE TABLE cluster(
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
INSERT INTO cluster(name, value) VALUES ('ledger', gen_random_uuid()::text);

-- The nodes that follow the changes of events: all changes with a version below `applied` are in
-- force there. Another node removes the row of a node that is behind; that one inserts it again.
CREATE TABLE nodes(
  id UUID PRIMARY KEY,
  name TEXT NOT NULL,
  applied BIGINT NOT NULL
);

-- Totals of the entries that retention has removed (entry_totals.h). Deleted with the event.
CREATE TABLE retired_entries(
  event_id BIGINT PRIMARY KEY,
  entered BIGINT NOT NULL,
  admitted BIGINT NOT NULL,
  completed BIGINT NOT NULL,
  gone BIGINT NOT NULL,
  expired BIGINT NOT NULL,
  waited_ms BIGINT NOT NULL,
  waited_ms_max BIGINT NOT NULL
);
