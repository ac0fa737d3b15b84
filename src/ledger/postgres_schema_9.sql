-- When the event closes by itself; NULL: at no time.
ALTER TABLE events ADD COLUMN closes_at BIGINT;
