/*
 * settings: every key of the configuration, once, with its default, range and meaning. The flag,
 * the environment variable, the INI line, --help and --print-config all come from this table.
 */
#ifndef ADMITONE_CLI_SETTINGS_H
#define ADMITONE_CLI_SETTINGS_H

#include "base/config.h"

/* users.auth, as the table's words: api/api.h's, after this one. */
#define USERS_AUTH_WORD_AUTO 0
#define USERS_AUTH_WORD_SIGNED 2

struct settings {
    const char *config_file;
    const char *listen;
    const char *data;
    int64_t workers; /* 0: one per core */
    const char *hot;
    const char *ledger;
    const char *feed;
    bool feed_consume;
    int64_t feed_partitions;
    const char *feed_topic_prefix;
    const struct config_pair *kafka; /* settings of librdkafka, as they are */
    const char *secret_file;
    const char *secret_previous_file;
    const char *pass_key_file;
    const char *admin_key_file;
    const char *keys_file;
    bool demo;
    const char *web_dir; /* empty: the embedded files */
    const char *page_name;
    const char *page_accent;
    const char *page_logo;
    const char *page_language;
    const char *page_texts;

    const char *admin_listen;
    const char *metrics_listen;
    const char *cors_origins;
    int64_t users_auth;
    const char *users_key_file;
    const char *shop_key_file;
    int64_t log_level;
    int64_t log_format;

    int64_t net_max_connections; /* 0: what the limit on open files allows */
    int64_t net_max_connections_per_address;
    const char *net_trusted_proxies;
    int64_t net_headers_timeout_ms;
    int64_t net_body_timeout_ms;
    int64_t net_idle_timeout_ms;
    int64_t net_write_timeout_ms;

    int64_t ledger_queue_max;
    int64_t ledger_batch_max;
    int64_t ledger_wal_bytes_max;
    int64_t ledger_deadline_ms;
    int64_t hot_deadline_ms;
    int64_t reconcile_interval_seconds;

    int64_t queue_max_waiting;
    int64_t queue_max_active;
    int64_t queue_entry_batch_size;
    int64_t queue_entry_interval_seconds;
    int64_t queue_active_ttl_seconds;
    int64_t queue_grace_seconds;
    int64_t queue_token_ttl_seconds;
    const char *queue_default_event;
    int64_t queue_tick_ms;
    int64_t push_interval_ms;
    int64_t sse_max_seconds;
    int64_t sse_heartbeat_seconds;
    int64_t sse_lag_bytes;
    int64_t reservation_hold_seconds;
    int64_t reservation_max_per_user;
    const char *reservation_currency;
    bool rankings_enabled;
    const char *rankings_time_zone;
    int64_t lock_wait_ms;
    int64_t lock_lease_ms;
    int64_t adaptive_calm_below;
    int64_t adaptive_hot_above;
    int64_t adaptive_wait_ms;
    int64_t adaptive_rest_ms;

    int64_t limits_places_per_address; /* per minute; 0: no limit */
    int64_t limits_places_burst;
    int64_t limits_requests_per_address; /* per second; likewise */
    int64_t limits_requests_burst;
    int64_t limits_block_factor;
    const char *limits_exempt;
    int64_t limits_seats;
    int64_t retention_audit_days;
    int64_t retention_ended_days;
};

extern const struct config_key setting_keys[];

/* Whether other nodes may use the same stores: the ledger does not belong to this process alone. */
bool settings_is_cluster(const struct settings *s);
/* Whether the feed is in Kafka: "kafka://host:9092,host:9092". */
bool settings_uses_kafka(const struct settings *s);
/* The brokers of that: "host:9092,host:9092". */
const char *settings_brokers(const struct settings *s);
/* Checks that these two stores fit each other. */
bool settings_check_stores(const struct settings *s, struct buf *why);
/* Checks that a server may run on these stores: they and the feed fit each other, and nodes that
 * share them have set their common keys. */
bool settings_check_server(const struct settings *s, struct buf *why);

/* Checks that the values of several keys fit each other. False: see `why`. */
bool settings_check(const struct settings *s, struct buf *why);

#endif
