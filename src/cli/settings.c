/* Every setting with its default, range and help, and the checks across settings. */
#include "cli/settings.h"

#include "base/clock.h"
#include "base/url.h"
#include "core/event.h"
#include "core/event_page.h"
#include "net/address.h"

#define AT(member) offsetof(struct settings, member)
#define TEXT(name, member, otherwise, argument, help)                                              \
    { name, CONFIG_TEXT, AT(member), otherwise, 0, 0, NULL, argument, help }
#define URL(name, member, otherwise, argument, help)                                               \
    { name, CONFIG_URL, AT(member), otherwise, 0, 0, NULL, argument, help }
#define NUMBER(name, member, otherwise, min, max, help)                                            \
    { name, CONFIG_I64, AT(member), otherwise, min, max, NULL, "N", help }
#define WORD(name, member, otherwise, words, help)                                                 \
    { name, CONFIG_WORD, AT(member), otherwise, 0, 0, words, "WORD", help }
#define SWITCH(name, member, otherwise, help)                                                      \
    { name, CONFIG_BOOL, AT(member), otherwise, 0, 0, NULL, "", help }

const struct config_key setting_keys[] = {
    TEXT("config", config_file, "", "FILE", "INI file to read"),
    TEXT("listen", listen, "127.0.0.1:8080", "ADDR:PORT",
         "address to listen on; port 0 chooses a free port"),
    TEXT("data", data, "./data", "DIR", "folder of the ledger, the secret and the admin key"),
    NUMBER("workers", workers, "0", 0, 256, "threads that serve requests; 0: one per core"),
    URL("hot", hot, "memory", "STORE",
        "store of queues and seats: memory, redis://HOST:PORT, redis+sentinel://…/MASTER"),
    URL("ledger", ledger, "sqlite:", "STORE",
        "durable store: sqlite:PATH (default: in DATA), postgres://USER@HOST/DATABASE"),
    URL("feed", feed, "local", "FEED",
        "where asynchronous requests go: local (the ledger), kafka://HOST:PORT[,HOST:PORT]"),
    SWITCH("feed.consume", feed_consume, "true",
           "decide asynchronous requests; false: only accept them"),
    NUMBER("feed.partitions", feed_partitions, "12", 1, 256,
           "with kafka: partitions of a topic that does not exist yet"),
    TEXT("feed.topic_prefix", feed_topic_prefix, "", "TEXT",
         "with kafka: before the names of topics and group, for several clusters on one Kafka"),
    {"kafka.*", CONFIG_PAIRS, AT(kafka), "", 0, 0, NULL, "VALUE",
     "any setting of librdkafka, as in --kafka-security-protocol ssl"},
    TEXT("secret_file", secret_file, "", "FILE",
         "key that signs entry tokens; created in DATA if not given"),
    TEXT("secret_previous_file", secret_previous_file, "", "FILE",
         "previous key; tokens signed with it are still accepted"),
    TEXT("pass_key_file", pass_key_file, "", "FILE",
         "key that signs admission passes; created in DATA if not given"),
    TEXT("admin_key_file", admin_key_file, "", "FILE",
         "the admin key, which may do everything; created in DATA if not given"),
    TEXT("keys_file", keys_file, "", "FILE",
         "named keys ('admitone keys'), read again when it changes; DATA/keys if not given"),
    SWITCH("demo", demo, "false",
           "create demo events, print what to try, and let virtual users come (/admin/simulator)"),
    TEXT("web_dir", web_dir, "", "DIR",
         "for development: read the pages from DIR (web/ of the source) at each request"),
    TEXT("page.name", page_name, "admitone", "TEXT", "name of the site, shown on its pages"),
    TEXT("page.accent", page_accent, "", "COLOUR",
         "accent colour of the pages, as in #c2185b; empty: that of the style sheet"),
    TEXT("page.logo", page_logo, "", "URL",
         "logo of the pages: https://… or a path of this server; empty: none"),
    TEXT("page.language", page_language, "en", "CODE",
         "language of the pages for browsers that ask for none that there is"),
    TEXT("page.texts", page_texts, "", "DIR",
         "folder of files such as ko.json, which replace texts of the pages or add a language"),
    TEXT("admin.listen", admin_listen, "", "ADDR:PORT", "serve the admin paths here and only here"),
    TEXT("metrics.listen", metrics_listen, "", "ADDR:PORT", "serve /metrics here and only here"),
    TEXT("cors.origins", cors_origins, "", "LIST",
         "origins whose pages may call the API: *, or a comma-separated list"),
    WORD("users.auth", users_auth, "auto", "auto trusted signed anonymous",
         "how users are identified; auto: trusted, on loopback only"),
    TEXT("users.key_file", users_key_file, "", "FILE",
         "for users.auth signed: key that the shop signs user assertions with (HS256)"),
    TEXT("shop.key_file", shop_key_file, "", "FILE",
         "key that the shop signs confirmations of reservations with (HS256)"),
    WORD("log.level", log_level, "info", "debug info warn error", "lowest level that is logged"),
    WORD("log.format", log_format, "logfmt", "logfmt json", "format of log lines"),
    NUMBER("net.max_connections", net_max_connections, "0", 0, 1000000,
           "connections in all; 0: as many as the limit on open files allows"),
    NUMBER("net.max_connections_per_address", net_max_connections_per_address, "0", 0, 1000000,
           "connections per client address, but for loopback and trusted proxies; 0: no cap"),
    TEXT("net.trusted_proxies", net_trusted_proxies, "", "LIST",
         "networks whose X-Forwarded-For is trusted, such as 192.0.2.0/24"),
    NUMBER("net.headers_timeout_ms", net_headers_timeout_ms, "10000", 100, 600000,
           "a request's line and headers must arrive in this time"),
    NUMBER("net.body_timeout_ms", net_body_timeout_ms, "10000", 100, 600000,
           "a request's body must arrive in this time"),
    NUMBER("net.idle_timeout_ms", net_idle_timeout_ms, "75000", 100, 3600000,
           "a connection without a request is closed after this time; a new one after "
           "net.headers_timeout_ms while three quarters of net.max_connections are taken"),
    NUMBER("net.write_timeout_ms", net_write_timeout_ms, "30000", 100, 600000,
           "a client that reads nothing of its answer for this time is disconnected"),
    NUMBER("ledger.queue_max", ledger_queue_max, "65536", 1, 1000000,
           "records that may wait for their commit; above this, requests get 503"),
    NUMBER("ledger.batch_max", ledger_batch_max, "1024", 1, 65536, "records in one transaction"),
    NUMBER("ledger.wal_bytes_max", ledger_wal_bytes_max, "16777216", 65536, 1073741824,
           "size of the write-ahead log above which the writer checkpoints it"),
    NUMBER(
        "ledger.deadline_ms", ledger_deadline_ms, "5000", 100, 60000,
        "with postgres: time limit of a write; another node finishes what is pending for longer"),
    NUMBER("hot.deadline_ms", hot_deadline_ms, "2000", 50, 60000,
           "with redis: time limit of a call"),
    NUMBER("reconcile.interval_seconds", reconcile_interval_seconds, "300", 0, 86400,
           "with redis: how often one node compares it with the ledger; 0: never"),
    NUMBER("queue.max_waiting", queue_max_waiting, "1000000", 0, MAX_WAITING_MAX,
           "new events: how many users may wait"),
    NUMBER("queue.max_active", queue_max_active, "100", 1, MAX_ACTIVE_MAX,
           "new events: how many users may be active at once"),
    NUMBER("queue.entry_batch_size", queue_entry_batch_size, "50", 1, ENTRY_BATCH_MAX,
           "new events: how many users are admitted per interval"),
    NUMBER("queue.entry_interval_seconds", queue_entry_interval_seconds, "1", 1,
           ENTRY_INTERVAL_S_MAX, "new events: interval between admissions"),
    NUMBER("queue.active_ttl_seconds", queue_active_ttl_seconds, "600", 1, ACTIVE_TTL_S_MAX,
           "new events: how long an admitted user may stay"),
    NUMBER("queue.grace_seconds", queue_grace_seconds, "300", 1, GRACE_S_MAX,
           "new events: a user without a stream or poll for this long loses the place"),
    NUMBER("queue.token_ttl_seconds", queue_token_ttl_seconds, "0", 0, TOKEN_TTL_S_MAX,
           "new events: how long a token is valid; 0: as long as its entry"),
    TEXT("queue.default_event", queue_default_event, "", "TYPE/ID",
         "event of POST /queue/token if the request names none"),
    NUMBER("queue.tick_ms", queue_tick_ms, "100", 10, 1000,
           "how often the server checks whether it can admit waiting users"),
    NUMBER("push.interval_ms", push_interval_ms, "1000", 10, 60000,
           "a changed position is pushed at most this often"),
    NUMBER("sse.max_seconds", sse_max_seconds, "300", 1, 86400,
           "a stream is closed after this time; its client reconnects"),
    NUMBER("sse.heartbeat_seconds", sse_heartbeat_seconds, "15", 1, 300,
           "how often an idle stream gets a heartbeat"),
    NUMBER("sse.lag_bytes", sse_lag_bytes, "16384", 1024, 1048576,
           "a stream with more unread bytes is closed"),
    NUMBER("reservation.hold_seconds", reservation_hold_seconds, "300", 1, HOLD_S_MAX,
           "new events: how long seats are held"),
    NUMBER("reservation.max_per_user", reservation_max_per_user, "4", 1, PER_USER_MAX,
           "new events: seats per user"),
    TEXT("reservation.currency", reservation_currency, "KRW", "CODE",
         "new events: currency of the prices"),
    SWITCH("rankings.enabled", rankings_enabled, "true",
           "keep rankings; --rankings-enabled=false switches them off"),
    TEXT("rankings.time_zone", rankings_time_zone, "UTC", "ZONE",
         "time zone of the days, weeks and months of rankings"),
    NUMBER("lock.wait_ms", lock_wait_ms, "10000", 0, 10000,
           "strategies with a lock: how long a request waits for it before it gets 409"),
    NUMBER("lock.lease_ms", lock_lease_ms, "3000", 100, 60000,
           "a lock expires if its holder does not renew it for this long"),
    NUMBER("adaptive.calm_below", adaptive_calm_below, "100", 1, 1000000,
           "an adaptive section uses the lock again below this many concurrent requests"),
    NUMBER(
        "adaptive.hot_above", adaptive_hot_above, "1000", 1, 1000000,
        "an adaptive section stops using the lock above this many concurrent requests, or waiting "
        "users"),
    NUMBER("adaptive.wait_ms", adaptive_wait_ms, "50", 1, 10000,
           "an adaptive section stops using the lock when a request waited for it for this long"),
    NUMBER("adaptive.rest_ms", adaptive_rest_ms, "5000", 0, 3600000,
           "how long an adaptive section stays without the lock after the last reason to"),
    NUMBER("limits.places_per_address", limits_places_per_address, "60", 0, 1000000,
           "new places in queues per minute and client address; 0: no limit"),
    NUMBER("limits.places_burst", limits_places_burst, "300", 1, 1000000,
           "so many new places an address may take at once, after a while without any"),
    NUMBER("limits.requests_per_address", limits_requests_per_address, "100", 0, 100000,
           "requests per second and client address; a read counts as a tenth; 0: no limit"),
    NUMBER("limits.requests_burst", limits_requests_burst, "1000", 1, 1000000,
           "so many requests an address may send at once, after a while without any"),
    NUMBER("limits.block_factor", limits_block_factor, "8", 1, 256,
           "a block of addresses (/24; IPv6: /56) may have so many times what an address may"),
    TEXT("limits.exempt", limits_exempt, "127.0.0.0/8,::1", "LIST",
         "networks without limits on arrival, as are requests with a key"),
    NUMBER("limits.seats", limits_seats, "10000000", 1, SERVER_CAPACITY_MAX,
           "seats of all events together; with hot in memory each takes 12 bytes"),
    NUMBER("retention.audit_days", retention_audit_days, "365", 0, 36500,
           "how long the audit trail is kept; 0: for ever"),
    NUMBER("retention.ended_days", retention_ended_days, "30", 0, 36500,
           "how long ended reservations and entries are kept; 0: for ever"),
    {0},
};

static bool default_event_ok(str text) {
    str rest = text;
    str type;
    return str_split(&rest, '/', &type) && event_name_ok(type, EVENT_TYPE_BYTES_MAX) &&
           event_name_ok(rest, EVENT_ID_BYTES_MAX);
}

/* `where` is an endpoint, or empty. */
static bool beyond_loopback(const char *where) {
    struct sockaddr_storage endpoint;
    if (!endpoint_parse(str_of(where), &endpoint)) return false;
    struct address address = address_of(&endpoint);
    return !address_is_loopback(&address);
}

/* Why `auto` is refused: clients other than the shop's own servers may connect. NULL: it is not.
 * The two listeners are known to be endpoints. */
static const char *why_not_auto(const struct settings *s) {
    if (beyond_loopback(s->listen)) return "listen is not loopback";
    if (beyond_loopback(s->admin_listen)) return "admin.listen is not loopback";
    if (s->net_trusted_proxies[0] != '\0') return "net.trusted_proxies are in front";
    return NULL;
}

static void check_users(const struct settings *s, struct buf *why) {
    if (s->users_auth == USERS_AUTH_WORD_AUTO && why_not_auto(s) != NULL)
        buf_addf(
            why,
            "users.auth: %s, so choose how users are identified: trusted (only the shop's own "
            "servers can reach this one), signed (the shop signs who the user is) or anonymous "
            "(by a cookie)",
            why_not_auto(s));
    else if (s->users_auth == USERS_AUTH_WORD_SIGNED && s->users_key_file[0] == '\0')
        buf_add(why, STR("users.key_file: users.auth is signed, which needs the shop's key"));
    else if (s->users_auth != USERS_AUTH_WORD_SIGNED && s->users_key_file[0] != '\0')
        buf_add(why, STR("users.key_file: it counts only when users.auth is signed"));
}

/* As a browser sends it, with which it is compared byte by byte. */
static bool origin_ok(const char *origin) {
    return str_matches(origin,
                       "^[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\\[[0-9a-f:.]+])(:[0-9]{1,5})?$") &&
           !str_matches(origin, "^(http://.*:80|https://.*:443)$");
}

static bool origins_ok(const struct settings *s, struct buf *why) {
    str rest = str_of(s->cors_origins);
    str one;
    struct buf origin = {0};
    if (str_eq(rest, STR("*"))) return true;
    while (why->len == 0 && str_split(&rest, ',', &one)) {
        buf_clear(&origin);
        buf_add(&origin, str_trim(one));
        if (origin.len > 0 && !origin_ok(buf_cstr(&origin)))
            buf_addf(why,
                     "cors.origins: \"%s\" is not an origin as browsers send it, as in "
                     "https://shop.example or http://localhost:3000: in small letters, without a "
                     "path, a default port or a wildcard; or * alone for all",
                     buf_cstr(&origin));
    }
    buf_deinit(&origin);
    return why->len == 0;
}

static bool is_postgres(const struct settings *s) {
    str ledger = str_of(s->ledger);
    return str_starts(ledger, STR("postgres://")) || str_starts(ledger, STR("postgresql://"));
}

bool settings_is_cluster(const struct settings *s) {
    return is_postgres(s);
}

bool settings_uses_kafka(const struct settings *s) {
    return str_starts(str_of(s->feed), STR("kafka://"));
}

const char *settings_brokers(const struct settings *s) {
    return s->feed + sizeof "kafka://" - 1;
}

/* The first setting of librdkafka on which the promises of the feed depend; NULL: there is none. */
static const char *reserved_setting(const struct config_pair *settings) {
    static const char *const reserved[] = {"bootstrap.servers",  "group.id",
                                           "enable.idempotence", "acks",
                                           "auto.offset.reset",  "enable.auto.offset.store",
                                           "enable.auto.commit", "partition.assignment.strategy"};
    for (; settings->name != NULL; settings++)
        for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
            if (strcmp(settings->name, reserved[i]) == 0) return settings->name;
    return NULL;
}

static bool feed_ok(const struct settings *s, struct buf *why) {
    bool is_local = strcmp(s->feed, "local") == 0;
    const char *reserved = reserved_setting(s->kafka);
    if (!is_local && !str_matches(s->feed, "^kafka://[^/@,[:space:]]+(,[^/@,[:space:]]+)*$")) {
        buf_add(why, STR("feed: \""));
        url_redact(str_of(s->feed), why);
        buf_add(why, STR("\" is neither local nor kafka://HOST:PORT[,HOST:PORT]; a user and a "
                         "password go into kafka.sasl.username and kafka.sasl.password"));
    } else if (is_local && s->kafka[0].name != NULL) {
        buf_addf(why, "kafka.%s: it counts only with --feed kafka://HOST:PORT", s->kafka[0].name);
    } else if (reserved != NULL) {
        buf_addf(why, "kafka.%s: admitone sets this itself", reserved);
    } else if (!str_matches(s->feed_topic_prefix, "^[A-Za-z0-9._-]{0,80}$")) {
        buf_add(why, STR("feed.topic_prefix: up to 80 letters, digits and . _ -"));
    }
    return why->len == 0;
}

/* The text behind the scheme may hold a password, and is not repeated. */
static bool stores_ok(const struct settings *s, struct buf *why) {
    str hot = str_of(s->hot);
    bool is_redis = str_starts(hot, STR("redis://")) || str_starts(hot, STR("rediss://")) ||
                    str_starts(hot, STR("redis+"));
    if (!is_redis && strcmp(s->hot, "memory") != 0)
        buf_add(why, STR("hot: it is memory, redis://HOST:PORT[/DB] or "
                         "redis+sentinel://HOST:PORT,…/MASTER"));
    else if (!str_starts(str_of(s->ledger), STR("sqlite:")) && !is_postgres(s))
        buf_add(why, STR("ledger: it is sqlite:PATH or postgres://USER@HOST:PORT/DATABASE"));
    else if (is_postgres(s) && url_is_ambiguous(str_of(s->ledger)))
        buf_add(why, STR("ledger: in a password or parameter write @ as %40, / as %2F, ? as %3F"));
    return why->len == 0;
}

bool settings_check_stores(const struct settings *s, struct buf *why) {
    bool is_memory = strcmp(s->hot, "memory") == 0;
    if (!is_memory && !is_postgres(s))
        buf_add(why,
                STR("ledger: with hot in Redis other nodes may join, and an SQLite file is one "
                    "process's own; use postgres://…, or --hot memory"));
    else if (is_memory && is_postgres(s))
        buf_add(why, STR("hot: with the ledger in PostgreSQL other nodes may join, and memory is "
                         "one process's own; use redis://…, or --ledger sqlite:"));
    return why->len == 0;
}

bool settings_check_server(const struct settings *s, struct buf *why) {
    bool has_keys =
        s->secret_file[0] != '\0' && s->admin_key_file[0] != '\0' && s->pass_key_file[0] != '\0';
    if (!settings_check_stores(s, why)) return false;
    if (settings_uses_kafka(s) && !is_postgres(s))
        buf_add(why, STR("feed: with Kafka other nodes may join, and memory and SQLite are one "
                         "process's own; use redis://… and postgres://…, or --feed local"));
    else if (is_postgres(s) && !has_keys)
        buf_add(why, STR("secret_file: nodes must have the same keys: give all of them the same "
                         "--secret-file, --pass-key-file and --admin-key-file"));
    return why->len == 0;
}

static bool page_ok(const struct settings *s, struct buf *why) {
    str name = str_of(s->page_name);
    str accent = str_of(s->page_accent);
    str logo = str_of(s->page_logo);
    if (name.len == 0 || !prose_ok(name, PAGE_NAME_CHARS_MAX))
        buf_addf(why, "page.name: it must have 1 to %d characters of text", PAGE_NAME_CHARS_MAX);
    else if (accent.len > 0 && !page_accent_ok(accent))
        buf_addf(why, "page.accent: \"%s\" is not a colour such as #c2185b", s->page_accent);
    else if (logo.len > 0 && !page_logo_ok(logo))
        buf_addf(why, "page.logo: \"%s\" is neither https://… nor a path such as /logo.svg",
                 s->page_logo);
    return why->len == 0;
}

bool settings_check(const struct settings *s, struct buf *why) {
    struct sockaddr_storage address;
    struct networks networks;
    if (s->data[0] == '\0') {
        buf_add(why, STR("data: the folder needs a name, as in ./data"));
    } else if (!endpoint_parse(str_of(s->listen), &address)) {
        buf_addf(why, "listen: \"%s\" is not ADDR:PORT, as in 127.0.0.1:8080 or [::1]:8080",
                 s->listen);
    } else if (s->admin_listen[0] != '\0' && !endpoint_parse(str_of(s->admin_listen), &address)) {
        buf_addf(why, "admin.listen: \"%s\" is not ADDR:PORT, as in 127.0.0.1:8081",
                 s->admin_listen);
    } else if (s->metrics_listen[0] != '\0' &&
               !endpoint_parse(str_of(s->metrics_listen), &address)) {
        buf_addf(why, "metrics.listen: \"%s\" is not ADDR:PORT, as in 127.0.0.1:8082",
                 s->metrics_listen);
    } else if (!networks_parse(str_of(s->net_trusted_proxies), &networks)) {
        buf_addf(why,
                 "net.trusted_proxies: \"%s\" is not a list of networks, as in "
                 "192.0.2.0/24,2001:db8::/32",
                 s->net_trusted_proxies);
    } else if (!networks_parse(str_of(s->limits_exempt), &networks)) {
        buf_addf(why,
                 "limits.exempt: \"%s\" is not a list of networks, as in 127.0.0.0/8,2001:db8::/32",
                 s->limits_exempt);
    } else if (!event_currency_ok(str_of(s->reservation_currency))) {
        buf_addf(why, "reservation.currency: \"%s\" is not three capital letters",
                 s->reservation_currency);
    } else if (!clock_zone_ok(s->rankings_time_zone)) {
        buf_addf(why,
                 "rankings.time_zone: \"%s\" is not in the time zone database; an example is "
                 "Asia/Seoul",
                 s->rankings_time_zone);
    } else if (!stores_ok(s, why) || !origins_ok(s, why) || !feed_ok(s, why) || !page_ok(s, why)) {
        ; /* they say why */
    } else if (strcmp(s->ledger, "sqlite::memory:") == 0) {
        buf_add(why, STR("ledger: it must be a file; what is only in memory is not durable"));
    } else if (s->adaptive_calm_below > s->adaptive_hot_above) {
        buf_addf(why, "adaptive.calm_below: %lld is above adaptive.hot_above, which is %lld",
                 (long long)s->adaptive_calm_below, (long long)s->adaptive_hot_above);
    } else if (s->queue_default_event[0] != '\0' &&
               !default_event_ok(str_of(s->queue_default_event))) {
        buf_addf(why, "queue.default_event: \"%s\" is not TYPE/ID, as in CONCERT/1",
                 s->queue_default_event);
    } else {
        check_users(s, why);
    }
    return why->len == 0;
}
