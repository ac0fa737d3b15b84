#include "services.h"

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

#define WORDS_MAX 16

static struct services services;
static pid_t owner;
static unsigned started; /* and not stopped since */

struct command {
    const char *words[WORDS_MAX];
    size_t count;
};

static void add(struct command *c, const char *word) {
    assert_true(c->count + 1 < WORDS_MAX);
    c->words[c->count++] = word;
}

static void add_names(struct command *c, unsigned what) {
    if ((what & SERVICE_REDIS) != 0) add(c, "redis");
    if ((what & SERVICE_POSTGRES) != 0) add(c, "postgres");
    if ((what & SERVICE_SENTINEL) != 0) add(c, "sentinel");
    if ((what & SERVICE_KAFKA) != 0) add(c, "kafka");
}

/* Runs scripts/services to its end, its standard output into `out`, if there is one. It gets no
 * other open file of ours: its servers would keep it open. */
static int run(struct command *c, FILE *out) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (out != NULL) posix_spawn_file_actions_adddup2(&files, fileno(out), STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    pid_t pid;
    int status = -1;
    int failed = posix_spawn(&pid, SERVICES_SCRIPT, &files, NULL, (char **)c->words, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed != 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void copy(char *to, size_t size, const char *value) {
    int length = snprintf(to, size, "%s", value);
    assert_true(length >= 0 && (size_t)length < size);
}

static int number(const char *digits) {
    long value = strtol(digits, NULL, 10);
    assert_in_range(value, 1, INT32_MAX);
    return (int)value;
}

static void take(const char *name, const char *value) {
    if (strcmp(name, "SERVICES_DIR") == 0) {
        copy(services.folder, sizeof services.folder, value);
    } else if (strcmp(name, "REDIS_URL") == 0) {
        copy(services.redis_url, sizeof services.redis_url, value);
    } else if (strcmp(name, "REDIS_PORT") == 0) {
        services.redis_port = number(value);
    } else if (strcmp(name, "REDIS_PID") == 0) {
        services.redis_pid = number(value);
    } else if (strcmp(name, "POSTGRES_URL") == 0) {
        copy(services.postgres_url, sizeof services.postgres_url, value);
    } else if (strcmp(name, "POSTGRES_PORT") == 0) {
        services.postgres_port = number(value);
    } else if (strcmp(name, "POSTGRES_PID") == 0) {
        services.postgres_pid = number(value);
    } else if (strcmp(name, "SENTINEL_URL") == 0) {
        copy(services.sentinel_url, sizeof services.sentinel_url, value);
    } else if (strcmp(name, "SENTINEL_MASTER_PID") == 0) {
        services.sentinel_master_pid = number(value);
    } else if (strcmp(name, "SENTINEL_REPLICA_PID") == 0) {
        services.sentinel_replica_pid = number(value);
    } else if (strcmp(name, "KAFKA_URL") == 0) {
        copy(services.kafka_url, sizeof services.kafka_url, value);
    } else if (strcmp(name, "KAFKA_PORT") == 0) {
        services.kafka_port = number(value);
    } else if (strcmp(name, "KAFKA_PID") == 0) {
        services.kafka_pid = number(value);
    }
}

static void take_all(FILE *lines) {
    char line[512];
    rewind(lines);
    while (fgets(line, sizeof line, lines) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *equals = strchr(line, '=');
        assert_non_null(equals);
        *equals = '\0';
        take(line, equals + 1);
    }
}

/* A child that a test forked off has them too, and must not end them. */
static void stop_at_exit(void) {
    if (getpid() != owner || services.folder[0] == '\0') return;
    struct command stop = {.words = {SERVICES_SCRIPT, "stop", services.folder}, .count = 3};
    (void)run(&stop, NULL);
}

const struct services *services_start(unsigned what) {
    if (owner == 0) {
        owner = getpid();
        assert_int_equal(0, atexit(stop_at_exit));
    }
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)owner);
    struct command start = {.words = {SERVICES_SCRIPT, "start", "--unsafe-fast"}, .count = 3};
    add(&start, "--with-parent");
    add(&start, parent);
    if (services.folder[0] != '\0') {
        add(&start, "--dir");
        add(&start, services.folder);
    }
    add_names(&start, what);
    FILE *out = tmpfile();
    assert_non_null(out);
    int status = run(&start, out);
    if (status == 0) take_all(out);
    fclose(out);
    if (status != 0) fail_msg("scripts/services start: exit code %d", status);
    started |= what;
    return &services;
}

/* A zombie has ended. */
static bool is_running(pid_t pid) {
    char path[32];
    char line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    const char *name_end = length == 0 ? NULL : strrchr(line, ')');
    return name_end != NULL && name_end[1] == ' ' && strchr("ZX", name_end[2]) == NULL;
}

void services_kill_redis(void) {
    pid_t pid = services_start(SERVICE_REDIS)->redis_pid;
    kill(pid, SIGKILL);
    while (is_running(pid)) usleep(1000);
}

const struct services *services_get(unsigned what) {
    return (started & what) == what ? &services : services_start(what);
}

void services_stop(unsigned what) {
    started &= ~what;
    assert_true(services.folder[0] != '\0');
    struct command stop = {.words = {SERVICES_SCRIPT, "stop", services.folder}, .count = 3};
    add_names(&stop, what);
    assert_int_equal(0, run(&stop, NULL));
}
