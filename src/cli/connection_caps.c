/* The limit on open files, and how it is divided. */
#include "cli/connection_caps.h"

#include <sys/resource.h>

#include "base/log.h"

/* Open files that are no client's connection: the ledger, logs, clients that are being refused; and
 * of each worker its loop, mailbox and listeners. */
#define RESERVED_FILES 192
#define RESERVED_FILES_PER_WORKER 8
#define CONNECTIONS_MIN 16
/* Of virtual users, on a demo server: at most so many, and at most a quarter of the files. Each is
 * two files of this process, so at least half of all files are left for others. */
#define VIRTUAL_CONNECTIONS_MIN 2
#define VIRTUAL_CONNECTIONS_MAX 2256
#define VIRTUAL_CONNECTIONS_PART 4

static int64_t raise_file_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 1024;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_cur > 1000000 ? 1000000 : (int64_t)files.rlim_cur;
}

/* How many connections virtual users may open, of the files that are left for connections. */
static int64_t virtual_connections(const struct settings *set, int64_t files) {
    if (!set->demo) return 0;
    int64_t most = set->net_max_connections > 0 && set->net_max_connections < files
                       ? set->net_max_connections
                       : files;
    most /= VIRTUAL_CONNECTIONS_PART;
    if (most < VIRTUAL_CONNECTIONS_MIN) return VIRTUAL_CONNECTIONS_MIN;
    return most < VIRTUAL_CONNECTIONS_MAX ? most : VIRTUAL_CONNECTIONS_MAX;
}

bool connection_caps_find(const struct settings *set, size_t worker_count,
                          struct connection_caps *out, struct buf *why) {
    int64_t files = raise_file_limit();
    int64_t reserved = RESERVED_FILES + RESERVED_FILES_PER_WORKER * (int64_t)worker_count;
    int64_t wanted = set->net_max_connections;
    int64_t possible = files - reserved;
    if (possible < CONNECTIONS_MIN) {
        buf_addf(why,
                 "the limit on open files is %lld; with %zu workers it must be at least %lld: "
                 "raise it with ulimit -n",
                 (long long)files, worker_count, (long long)reserved + CONNECTIONS_MIN);
        return false;
    }
    out->virtual = virtual_connections(set, possible);
    possible -= out->virtual;
    if (wanted > possible)
        log_warn(msg("the limit on open files is lower than net.max_connections; raise it with "
                     "ulimit -n"),
                 kv_i64("max_connections", wanted), kv_i64("possible", possible));
    out->clients = wanted == 0 || wanted > possible ? possible : wanted;
    return true;
}
