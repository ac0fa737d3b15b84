/* The table of subcommands, and the choice of the adapters for the ports. Only this file names the
 * adapters. */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "feed/kafka.h"
#include "feed/kafka_admin.h"
#include "feed/kafka_facts.h"
#include "feed/local.h"
#include "hot/memory.h"
#include "hot/memory_boards.h"
#include "hot/memory_limits.h"
#include "hot/memory_locks.h"
#include "hot/redis/store.h"
#include "ledger/postgres.h"
#include "ledger/sqlite.h"

/* What a ledger is opened for. */
enum ledger_use { LEDGER_SERVE, LEDGER_READ, LEDGER_RENEW };

static bool open_postgres(const struct settings *s, enum ledger_use use, struct ledger **out,
                          struct buf *why) {
    struct postgres_ledger_options options = {.url = s->ledger,
                                              .read_only = use == LEDGER_READ,
                                              .new_generation = use == LEDGER_RENEW,
                                              .queue_max = s->ledger_queue_max,
                                              .batch_max = s->ledger_batch_max,
                                              .deadline_ms = s->ledger_deadline_ms,
                                              .pessimistic_wait_ms = s->lock_wait_ms,
                                              .retain_audit_days = s->retention_audit_days,
                                              .retain_ended_days = s->retention_ended_days};
    return postgres_ledger_open(&options, out, why) == ERR_OK;
}

static bool open_ledger_for(const struct settings *s, enum ledger_use use, struct ledger **out,
                            struct buf *why) {
    if (settings_is_cluster(s)) return open_postgres(s, use, out, why);
    struct buf path = {0};
    cli_ledger_path(s, &path);
    struct sqlite_ledger_options options = {.path = buf_cstr(&path),
                                            .read_only = use == LEDGER_READ,
                                            .new_generation = use == LEDGER_RENEW,
                                            .no_relay = true, /* one process needs no relay */
                                            .queue_max = s->ledger_queue_max,
                                            .batch_max = s->ledger_batch_max,
                                            .wal_bytes_max = s->ledger_wal_bytes_max,
                                            .retain_audit_days = s->retention_audit_days,
                                            .retain_ended_days = s->retention_ended_days};
    enum err failed = sqlite_ledger_open(&options, out, why);
    buf_deinit(&path);
    return failed == ERR_OK;
}

static bool open_ledger(const struct settings *s, bool read_only, struct ledger **out,
                        struct buf *why) {
    return open_ledger_for(s, read_only ? LEDGER_READ : LEDGER_SERVE, out, why);
}

static bool renew_ledger(const struct settings *s, struct buf *why) {
    struct ledger *ledger;
    if (!open_ledger_for(s, LEDGER_RENEW, &ledger, why)) return false;
    ledger_close(ledger);
    return true;
}

struct memory_stores {
    struct memory *rooms;
    struct memory_locks *locks;
    struct memory_boards *boards;
    struct memory_limits *limits; /* NULL: the settings limit nothing */
};

static void close_memory(void *stores) {
    struct memory_stores *m = stores;
    memory_free(m->rooms);
    memory_locks_free(m->locks);
    memory_boards_free(m->boards);
    memory_limits_free(m->limits);
    mem_free(m);
}

static void attach_redis(void *stores, uv_loop_t *loop) {
    redis_store_attach(stores, loop);
}

static void detach_redis(void *stores) {
    redis_store_detach(stores);
}

static void close_redis(void *stores) {
    redis_store_free(stores);
}

static struct limit_rules limit_rules_from(const struct settings *s) {
    struct limit_settings limits = {.places_per_minute = s->limits_places_per_address,
                                    .places_burst = s->limits_places_burst,
                                    .requests_per_second = s->limits_requests_per_address,
                                    .requests_burst = s->limits_requests_burst,
                                    .block_factor = s->limits_block_factor};
    return limit_rules_of(&limits);
}

static bool open_redis(const struct settings *s, struct hot_stores *out, struct buf *why) {
    struct redis_options options = {
        .deadline_ms = s->hot_deadline_ms, .redis_clock = true, .limits = limit_rules_from(s)};
    if (!redis_address_parse(str_of(s->hot), &options.address, why)) return false;
    struct redis_store *r = redis_store_new(&options);
    *out = (struct hot_stores){.queues = redis_store_queues(r),
                               .seats = redis_store_seats(r),
                               .locks = redis_store_locks(r),
                               .boards = redis_store_boards(r),
                               .limits = redis_store_limits(r),
                               .hot = redis_store_hot(r),
                               .stores = r,
                               .close = close_redis,
                               .attach = attach_redis,
                               .detach = detach_redis};
    return true;
}

static bool open_hot(const struct settings *s, uint32_t epoch, struct hot_stores *out,
                     struct buf *why) {
    if (settings_is_cluster(s)) return open_redis(s, out, why);
    struct memory_stores *m = mem_new(sizeof *m);
    m->rooms = memory_new();
    m->locks = memory_locks_new(epoch);
    m->boards = memory_boards_new();
    struct limit_rules rules = limit_rules_from(s);
    if (limit_rules_any(&rules)) m->limits = memory_limits_new(&rules, false);
    *out = (struct hot_stores){.queues = memory_queues(m->rooms),
                               .seats = memory_seats(m->rooms),
                               .locks = memory_locks_port(m->locks),
                               .boards = memory_boards_port(m->boards),
                               .limits = m->limits == NULL ? NULL : memory_limits_port(m->limits),
                               .stores = m,
                               .close = close_memory};
    return true;
}

static struct kafka_options kafka_options_of(const struct settings *s) {
    return (struct kafka_options){.brokers = settings_brokers(s),
                                  .settings = s->kafka,
                                  .partitions = s->feed_partitions,
                                  .prefix = s->feed_topic_prefix};
}

static bool open_feed(const struct settings *s, struct ledger *ledger, size_t workers,
                      struct feed **out, struct buf *why) {
    if (!settings_uses_kafka(s)) {
        *out = local_feed_new(ledger, workers, settings_is_cluster(s));
        return true;
    }
    struct kafka_options options = kafka_options_of(s);
    *out = kafka_feed_new(&options, workers, s->feed_consume, why);
    return *out != NULL;
}

static struct feed_admin *open_feed_admin(const struct settings *s, struct buf *why) {
    struct kafka_options options = kafka_options_of(s);
    assert(settings_uses_kafka(s));
    return kafka_admin_new(&options, why);
}

static bool open_fact_sink(const struct settings *s, struct fact_sink **out, struct buf *why) {
    *out = NULL;
    if (!settings_uses_kafka(s)) return true;
    struct kafka_options options = kafka_options_of(s);
    *out = kafka_facts_new(&options, why);
    return *out != NULL;
}

static const struct command {
    const char *name;
    int (*run)(char *const *args, const struct adapters *adapters);
    const char *usage;
    const char *help;
    bool has_settings;
} commands[] = {
    {"serve", cli_serve, "admitone serve [--key value …]",
     "Runs the server until SIGTERM or Ctrl-C.\n\n"
     "  admitone serve --demo                       a first try, on http://127.0.0.1:8080\n"
     "  admitone serve --data /var/lib/admitone     keep the data there\n"
     "  admitone serve --config admitone.ini        read keys from a file\n"
     "  admitone serve --print-config               show every setting and where it comes from\n",
     true},
    {"audit", cli_audit,
     "admitone audit [--data DIR] [--ledger sqlite:PATH | postgres://… [--hot redis://…]]",
     "Checks a ledger: no seat is sold twice, every hold ends in time, every count is right. With\n"
     "--hot it also recounts the boards in Redis; rankings.time_zone must then be that of the\n"
     "nodes. Prints each check and its result. Exits with 0 when all is well, 1 on a violation,\n"
     "2 when something could not be checked. May run beside a server.\n\n"
     "  admitone audit --data /var/lib/admitone\n"
     "  admitone audit --ledger postgres://admitone@db/admitone --hot redis://cache\n",
     true},
    {"ledger", cli_ledger,
     "admitone ledger new-generation [--data DIR] [--ledger sqlite:PATH | postgres://…]",
     "Begins a new generation of a ledger, after it was restored from a backup: entry tokens that\n"
     "were issued before are void, because the restored ledger knows nothing of the users who\n"
     "came after the backup. Users keep the places that the ledger has, and get new tokens by\n"
     "entering again. A server recognises most restores by itself and says so in a warning at its\n"
     "start (docs/operations.md, Backup); this is for the others, such as a snapshot of a disk.\n"
     "Stop the server, or all nodes, first. Exits with 0 when it is done, 1 when it could not be.\n"
     "\n"
     "  admitone ledger new-generation --data /var/lib/admitone\n"
     "  admitone ledger new-generation --ledger postgres://admitone@db/admitone\n",
     true},
    {"reconcile", cli_reconcile, "admitone reconcile --hot redis://… --ledger postgres://…",
     "Compares Redis with the ledger, event by event. A difference that lasts longer than twice\n"
     "ledger.deadline_ms (set it as on the nodes) is repaired: Redis gets the ledger's state.\n"
     "Prints each difference. Exits with 0 when all agrees or was repaired, 1 when something\n"
     "could not be repaired, 2 when it could not compare. May run beside the nodes.\n\n"
     "  admitone reconcile --hot redis://cache --ledger postgres://admitone@db/admitone\n",
     true},
    {"feed", cli_feed,
     "admitone feed status | dlq list | dlq retry ID | dlq drop ID  --feed kafka://… [--json]",
     "Shows the feed of asynchronous requests, and its dead letters: messages that no node could\n"
     "decide. The words come first, then the settings, which must be those of the nodes: feed,\n"
     "feed.topic_prefix and kafka.*. May run beside the nodes, and without them.\n\n"
     "  status         the brokers; of each partition its end, what is decided, the lag and the\n"
     "                 node that works on it; the number of open dead letters. With the local\n"
     "                 feed: the undecided requests in the ledger (--data or --ledger)\n"
     "  dlq list       the open dead letters: why each one is there and how it begins\n"
     "  dlq retry ID   gives the message to the nodes again, when the reason is gone: the event\n"
     "                 was created, for instance. If it cannot be decided again, it becomes a\n"
     "                 dead letter again, with a new ID. 'all' instead of the ID: every open one\n"
     "  dlq drop ID    gives it up: its request fails with the reason request_dropped. 'all'\n"
     "                 instead of the ID, together with --yes: every open one\n\n"
     "--json prints status and dlq list as JSON. Exits with 0 when all is well; 1 when someone\n"
     "should look: dead letters are open (status), no node works on a partition with undecided\n"
     "requests, a broker does not answer for a partition, or the ID is not open; 2 when Kafka\n"
     "or the ledger could not be asked.\n\n"
     "  admitone feed status --feed kafka://kafka1:9092,kafka2:9092\n"
     "  admitone feed dlq list --config /etc/admitone/admitone.ini\n"
     "  admitone feed dlq retry 17 --config /etc/admitone/admitone.ini\n",
     true},
    {"keys", cli_keys,
     "admitone keys list | add NAME ROLE | remove NAME  [--data DIR | --keys-file FILE]",
     "Changes the named keys, by which people and programs do what a user may not. Servers that\n"
     "run follow the change within seconds; each node of a cluster reads its own file. The words\n"
     "come first, then the settings, which must be those of the server.\n\n"
     "  list              the names and roles\n"
     "  add NAME ROLE     prints a new key, only once: the file has its digest, not the key\n"
     "  remove NAME       the key is refused from now on\n\n"
     "The roles: read sees everything below /admin; operate also controls queues, and opens and\n"
     "closes sections; shop confirms, cancels and looks up reservations of every user; own may do\n"
     "everything, like the admin key. NAME stands in the audit trail. Exits with 0 when it is\n"
     "done, 1 when the name is taken or there is no such key, 2 when the file cannot be used.\n\n"
     "  admitone keys add ticket-shop shop --data /var/lib/admitone\n"
     "  admitone keys remove ticket-shop --config /etc/admitone/admitone.ini\n",
     true},
    {"version", cli_version, "admitone version", "Prints the version.\n", false},
};

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_usage(FILE *to) {
    fputs("admitone lets a crowd buy something scarce, first come, first served,\n"
          "and never sells one seat twice.\n\n",
          to);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(to, "  %s\n", commands[i].usage);
    fputs("\n'admitone serve --demo' is a good start; 'admitone COMMAND --help' explains a "
          "command.\n",
          to);
}

static void print_help(const struct command *c) {
    struct buf text = {0};
    buf_addf(&text, "%s\n\n%s", c->usage, c->help);
    if (c->has_settings) {
        buf_add(&text, STR("\nEvery key is a flag (--queue-max-active 200), an environment "
                           "variable\n(ADMITONE_QUEUE_MAX_ACTIVE=200) and a line in the INI file "
                           "([queue] max_active = 200);\na flag beats the environment, which "
                           "beats the file.\n\n"));
        config_help(setting_keys, &text);
    }
    cli_print(&text);
    buf_deinit(&text);
}

int main(int argc, char **argv) {
    static const struct adapters adapters = {.open_ledger = open_ledger,
                                             .renew_ledger = renew_ledger,
                                             .open_hot = open_hot,
                                             .open_feed = open_feed,
                                             .open_feed_admin = open_feed_admin,
                                             .open_fact_sink = open_fact_sink};
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(stdout);
        return 0;
    }
    const struct command *command = find_command(name);
    if (command == NULL) {
        if (name[0] != '\0') fprintf(stderr, "admitone: there is no command '%s'\n\n", name);
        print_usage(stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(command);
            return 0;
        }
    struct buf why = {0};
    bool is_now = !command->has_settings || cli_check_clock(&why);
    if (!is_now) cli_complain(&why);
    buf_deinit(&why);
    if (!is_now) return command->run == cli_serve ? 1 : 2;
    return command->run(argv + 2, &adapters);
}
