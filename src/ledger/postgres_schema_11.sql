-- What the waiting room shows and where it sends its users: NULL, '', NULL if the event sets none. The
-- hosts are separated by commas. JSON, not JSONB: the text is shown as it was written.
ALTER TABLE events ADD COLUMN page JSON;
ALTER TABLE events ADD COLUMN return_hosts TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN notice TEXT;
