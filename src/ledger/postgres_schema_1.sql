-- The tables, as in the SQLite ledger. A migration that has shipped is never edited: a change is a
-- new one. Times are milliseconds since 1970, in columns whose names end with _at.
--
-- References that are guarded by the records which write them are not declared as foreign keys:
-- each would lock a row of the parent for every child. postgres_check.c checks them.

-- An event's version is the id of the audit row that made it, so it grows over all events and over
-- deletions. A deleted event stays until retention has removed what belonged to it.
-- max_per_user_ever is the highest that max_per_user was: for the audit, since what users have
-- stays when the limit is lowered.
CREATE TABLE events(
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type TEXT NOT NULL,
  external_id TEXT NOT NULL,
  version BIGINT NOT NULL CHECK (version > 0),
  title TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('DRAFT','OPEN','PAUSED','DRAINING','CLOSED')),
  auto_enter SMALLINT NOT NULL CHECK (auto_enter IN (0, 1)),
  opens_at BIGINT,
  starts_at BIGINT,
  opened_at BIGINT,
  max_waiting BIGINT NOT NULL CHECK (max_waiting >= 0),
  max_active BIGINT NOT NULL CHECK (max_active >= 0),
  entry_batch_size BIGINT NOT NULL CHECK (entry_batch_size >= 0),
  entry_interval_s BIGINT NOT NULL CHECK (entry_interval_s >= 0),
  active_ttl_s BIGINT NOT NULL CHECK (active_ttl_s >= 0),
  grace_s BIGINT NOT NULL CHECK (grace_s >= 0),
  token_ttl_s BIGINT NOT NULL CHECK (token_ttl_s >= 0),
  hold_s BIGINT NOT NULL CHECK (hold_s >= 0),
  max_per_user BIGINT NOT NULL CHECK (max_per_user >= 0),
  max_per_user_ever BIGINT NOT NULL DEFAULT 0,
  currency TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  deleted_at BIGINT
);
CREATE UNIQUE INDEX events_named ON events(type, external_id) WHERE deleted_at IS NULL;

-- A section that is taken out of its event, or whose event is deleted, notes the audit row that did
-- it and stays for the history until retention removes it. How many of its seats are held and
-- confirmed is counted in the transaction that changes it.
CREATE TABLE sections(
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id BIGINT NOT NULL REFERENCES events(id),
  code TEXT NOT NULL,
  name TEXT NOT NULL,
  capacity BIGINT NOT NULL CHECK (capacity BETWEEN 0 AND 1048575),
  price BIGINT NOT NULL CHECK (price >= 0),
  mode TEXT NOT NULL CHECK (mode IN ('slot','lock','adaptive','seat')),
  status TEXT NOT NULL CHECK (status IN ('open','closed','maintenance')),
  position BIGINT NOT NULL CHECK (position >= 0),
  held BIGINT NOT NULL DEFAULT 0 CHECK (held >= 0),
  confirmed BIGINT NOT NULL DEFAULT 0 CHECK (confirmed >= 0),
  removed_version BIGINT,
  CHECK (held + confirmed <= capacity)
) WITH (fillfactor = 50);
CREATE INDEX sections_of ON sections(event_id);
CREATE UNIQUE INDEX sections_named ON sections(event_id, code) WHERE removed_version IS NULL;
CREATE INDEX sections_removed ON sections(id) WHERE removed_version IS NOT NULL;

-- A missing row is AVAILABLE with version 0. Sections of mode `seat` get all their rows at creation,
-- so that there is a row to lock.
CREATE TABLE seats(
  section_id BIGINT NOT NULL,
  seat_no BIGINT NOT NULL CHECK (seat_no BETWEEN 1 AND 1048575),
  state TEXT NOT NULL CHECK (state IN ('AVAILABLE','HELD','CONFIRMED')),
  reservation_id UUID,
  version BIGINT NOT NULL CHECK (version >= 0),
  fence BIGINT NOT NULL DEFAULT 0 CHECK (fence >= 0),
  PRIMARY KEY (section_id, seat_no),
  CHECK ((state = 'AVAILABLE') = (reservation_id IS NULL))
) WITH (fillfactor = 70);

-- VOID: undone before it was answered; its number stays taken. A user has at most one live entry in
-- an event: the hot store decides this, and the index guards it.
CREATE TABLE queue_entries(
  event_id BIGINT NOT NULL,
  seq BIGINT NOT NULL CHECK (seq > 0),
  user_id TEXT NOT NULL,
  lane SMALLINT NOT NULL CHECK (lane BETWEEN 0 AND 15),
  status TEXT NOT NULL
    CHECK (status IN ('WAITING','ACTIVE','COMPLETED','LEFT','EXPIRED','VOID')),
  joined_at BIGINT NOT NULL,
  admitted_at BIGINT,
  active_expires_at BIGINT,
  finished_at BIGINT,
  PRIMARY KEY (event_id, seq),
  CHECK (status <> 'WAITING' OR (admitted_at IS NULL AND active_expires_at IS NULL)),
  CHECK (status <> 'ACTIVE' OR (admitted_at IS NOT NULL AND active_expires_at IS NOT NULL)),
  CHECK ((status IN ('WAITING','ACTIVE')) = (finished_at IS NULL))
);
CREATE UNIQUE INDEX queue_entries_live ON queue_entries(event_id, user_id)
  WHERE status IN ('WAITING','ACTIVE');

-- The id is a UUIDv7, so rows append. Which seats: seats.reservation_id while it is live, and `seats`
-- (numbers in order, with commas) also after it has ended, when the seats may belong to
-- another reservation.
CREATE TABLE reservations(
  id UUID PRIMARY KEY,
  event_id BIGINT NOT NULL,
  section_id BIGINT NOT NULL,
  user_id TEXT NOT NULL,
  entry_seq BIGINT NOT NULL,
  strategy TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('HELD','CONFIRMED','CANCELLED','EXPIRED','VOID')),
  seat_count BIGINT NOT NULL CHECK (seat_count > 0 OR status = 'VOID'),
  seats TEXT NOT NULL,
  price BIGINT NOT NULL CHECK (price >= 0),
  currency TEXT NOT NULL,
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  confirmed_at BIGINT,
  ended_at BIGINT,
  confirmation_code TEXT,
  CHECK (status <> 'HELD' OR confirmed_at IS NULL),
  CHECK (status <> 'CONFIRMED' OR confirmed_at IS NOT NULL),
  CHECK ((status IN ('HELD','CONFIRMED')) = (ended_at IS NULL))
);
CREATE INDEX reservations_live ON reservations(id) WHERE status IN ('HELD','CONFIRMED');
CREATE INDEX reservations_due ON reservations(expires_at) WHERE status = 'HELD';

-- How many seats each user has: HELD or CONFIRMED, and of these HELD. The row that every change of a
-- user's reservations locks.
CREATE TABLE buyers(
  event_id BIGINT NOT NULL,
  user_id TEXT NOT NULL,
  seats BIGINT NOT NULL,
  held BIGINT NOT NULL,
  PRIMARY KEY (event_id, user_id),
  CHECK (held >= 0 AND held <= seats)
) WITH (fillfactor = 80);

-- Asynchronous requests: either `seats` (numbers with commas) or any `quantity`.
CREATE TABLE requests(
  id UUID PRIMARY KEY,
  event_id BIGINT NOT NULL,
  section_id BIGINT NOT NULL,
  user_id TEXT NOT NULL,
  entry_seq BIGINT NOT NULL,
  quantity BIGINT NOT NULL CHECK (quantity > 0),
  seats TEXT,
  status TEXT NOT NULL CHECK (status IN ('PENDING','PROCESSING','SUCCESS','FAIL_SOLD_OUT',
    'FAIL_ALREADY_RESERVED','FAIL_CONFLICT','FAIL_NOT_ACTIVE','FAIL_NOT_FOUND','FAIL')),
  reservation_id UUID,
  created_at BIGINT NOT NULL,
  finished_at BIGINT,
  CHECK ((status IN ('PENDING','PROCESSING')) = (finished_at IS NULL)),
  CHECK (status <> 'SUCCESS' OR reservation_id IS NOT NULL)
);
CREATE INDEX requests_open ON requests(id) WHERE status IN ('PENDING','PROCESSING');

-- The outbox: written in the effect's own transaction, relayed once. Transactions commit in another
-- order than they take ids: facts that are to be relayed are found by relayed_at, not by the last id;
-- and sales are counted in the order of the transactions' numbers, up to the oldest that is open.
CREATE TABLE facts(
  id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('HELD','CONFIRMED','CANCELLED','EXPIRED','SOLD_OUT')),
  event_id BIGINT NOT NULL,
  section_id BIGINT,
  reservation_id UUID,
  user_id TEXT,
  seat_count BIGINT NOT NULL CHECK (seat_count >= 0),
  at BIGINT NOT NULL,
  relayed_at BIGINT,
  transaction XID8 NOT NULL DEFAULT pg_current_xact_id(),
  CHECK ((kind = 'SOLD_OUT') = (reservation_id IS NULL))
);
CREATE UNIQUE INDEX facts_once ON facts(reservation_id, kind) WHERE reservation_id IS NOT NULL;
CREATE INDEX facts_open ON facts(id) WHERE relayed_at IS NULL;
CREATE INDEX facts_sold_out ON facts(event_id, at) WHERE kind = 'SOLD_OUT';
CREATE INDEX facts_in_order ON facts(transaction, id) WHERE kind <> 'CONFIRMED';

CREATE TABLE idempotency(
  id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  user_id TEXT NOT NULL,
  route TEXT NOT NULL,
  key TEXT NOT NULL,
  body_digest BYTEA NOT NULL,
  status BIGINT NOT NULL CHECK (status BETWEEN 200 AND 299),
  response TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX idempotency_named ON idempotency(user_id, route, key);

CREATE TABLE audit(
  id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  act TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL CHECK (detail::json IS NOT NULL)
);

-- 'hot': the epoch of the incarnation in which the hot store should be, and the identity of the
-- store; the identity is empty during a rebuild.
CREATE TABLE epochs(
  name TEXT PRIMARY KEY,
  number BIGINT NOT NULL CHECK (number > 0),
  identity TEXT NOT NULL DEFAULT ''
);

-- The last transaction of each connection that writes, to find out whether it was committed when the
-- answer was lost. (The server's transaction number alone is not enough: after a crash it may be
-- given to another transaction.)
CREATE TABLE commits(
  session UUID PRIMARY KEY,
  number BIGINT NOT NULL,
  at BIGINT NOT NULL
) WITH (fillfactor = 20);
