/*
 * cli: the subcommands. Each takes the arguments after its name and returns the exit status: 0:
 * success; 1: a check or the server failed; 2: wrong usage, or a check could not be made.
 */
#ifndef ADMITONE_CLI_CLI_H
#define ADMITONE_CLI_CLI_H

#include <uv.h>

#include "cli/settings.h"
#include "port/fact_sink.h"
#include "port/feed.h"
#include "port/feed_admin.h"
#include "port/limits.h"
#include "port/locks.h"
#include "port/queue.h"
#include "port/seats.h"

/* The ports of the hot store, which one adapter implements. */
struct hot_stores {
    struct queues *queues;
    struct seats *seats;
    struct locks *locks;
    struct boards *boards;
    struct limits *limits; /* NULL: the settings limit nothing */
    struct hot *hot;       /* NULL: the stores are in this process */
    void *stores;          /* passed to the functions below */
    void (*close)(void *stores);
    /* NULL, or called on each worker's thread, first and last. */
    void (*attach)(void *stores, uv_loop_t *loop);
    void (*detach)(void *stores);
};

/* The concrete stores, chosen by main. */
struct adapters {
    /* Opens the ledger that the settings name. False: `why`. */
    bool (*open_ledger)(const struct settings *s, bool read_only, struct ledger **out,
                        struct buf *why);
    /* Begins a new generation of the ledger (port/ledger.h). False: `why`. */
    bool (*renew_ledger)(const struct settings *s, struct buf *why);
    /* `epoch`: of the ledger, for the fences of locks. */
    bool (*open_hot)(const struct settings *s, uint32_t epoch, struct hot_stores *out,
                     struct buf *why);
    /* The feed of asynchronous requests. False: `why`. */
    bool (*open_feed)(const struct settings *s, struct ledger *ledger, size_t workers,
                      struct feed **out, struct buf *why);
    /* The same for an operator, where the feed is not in the ledger. NULL: `why`. */
    struct feed_admin *(*open_feed_admin)(const struct settings *s, struct buf *why);
    /* Where facts are published; NULL: they are not. False: `why`. */
    bool (*open_fact_sink)(const struct settings *s, struct fact_sink **out, struct buf *why);
};

int cli_serve(char *const *args, const struct adapters *adapters);
int cli_audit(char *const *args, const struct adapters *adapters);
int cli_feed(char *const *args, const struct adapters *adapters);
int cli_ledger(char *const *args, const struct adapters *adapters);
int cli_keys(char *const *args, const struct adapters *adapters);
int cli_reconcile(char *const *args, const struct adapters *adapters);
int cli_version(char *const *args, const struct adapters *adapters);

/* A copy of the list, from which words can be taken. mem_free it. */
char **cli_copy_args(char *const *args);
/* Takes the word out of the list, if it is there. */
bool cli_take_word(char **args, const char *word);

/* Reads the settings, or prints what is wrong with them: then false. The config's warnings
 * are left to the caller. */
bool cli_settings(struct config *config, struct settings *s, char *const *args);
/* Calls `tell` with each of the config's warnings. */
void cli_warn(const struct config *config, void (*tell)(str warning));
/* "admitone: warning: …" on standard error. */
void cli_print_warning(str warning);

/* The path of a ledger in SQLite: from --ledger, or in the data folder. */
void cli_ledger_path(const struct settings *s, struct buf *out);

/* Whether the machine's clock can be right. False: `why`. */
bool cli_check_clock(struct buf *why);

/* The name of the ledger in messages: its path, or its address without a password. */
void cli_ledger_name(const struct settings *s, struct buf *out);

/* Opens a shared hot store for this process, if it is in the incarnation that the ledger expects.
 * False: `why`. */
bool cli_open_incarnation(struct ledger *ledger, struct hot *hot,
                          struct hot_incarnation *incarnation, struct buf *why);

/* Writes to standard output, whole. */
void cli_print(struct buf *text);
/* "admitone: …" on standard error. */
void cli_complain(const struct buf *why);

#endif
