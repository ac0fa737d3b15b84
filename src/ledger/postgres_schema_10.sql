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
