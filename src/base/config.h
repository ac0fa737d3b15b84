/*
 * config: settings from four places, by one table of keys. A flag beats the environment, which
 * beats the file, which beats the default:
 *
 *     --queue-max-active 200      ADMITONE_QUEUE_MAX_ACTIVE=200      [queue] max_active = 200
 *
 * An unknown key or an invalid value is an error, with a message that names it and its source. Only
 * an environment variable that is not a key is ignored, with a warning: it may be meant for another
 * program. Texts belong to the config and live as long as it does.
 *
 * A key whose name ends with ".*" takes every name that begins so, for settings that are passed on
 * to a library: --kafka-client-id x, ADMITONE_KAFKA_CLIENT_ID=x, [kafka] client.id = x.
 */
#ifndef ADMITONE_BASE_CONFIG_H
#define ADMITONE_BASE_CONFIG_H

#include "base/buf.h"

enum config_kind {
    CONFIG_TEXT,  /* const char * */
    CONFIG_URL,   /* the same; passwords in it are never printed */
    CONFIG_I64,   /* int64_t, min to max */
    CONFIG_BOOL,  /* bool */
    CONFIG_WORD,  /* int64_t: the index in `words`, "debug info warn error" */
    CONFIG_PAIRS, /* const struct config_pair *: a list; the key's name ends with ".*" */
};

struct config_pair {
    const char *name; /* behind the key's prefix: "client.id"; NULL: the end of the list */
    const char *value;
};

struct config_key {
    const char *name; /* "queue.max_active" */
    enum config_kind kind;
    size_t offset; /* in the struct that is filled */
    const char *otherwise;
    int64_t min;
    int64_t max;
    const char *words;
    const char *argument; /* for --help: "ADDR:PORT" */
    const char *help;
};

struct config {
    const struct config_key *keys; /* ends with a key without a name */
    void *into;
    char **texts;        /* the value of each key as it was given; owned */
    char **sources;      /* where it came from: "default", "flag --listen"; owned */
    struct buf warnings; /* a line for each environment variable that is ignored */
    /* Of all keys of the kind PAIRS, which is one at the most; with an end of the list. Owned. */
    struct config_pair *pairs;
    char **pair_sources;
    size_t pair_count;
};

/* Reads all four places. `args` are the words behind the subcommand, ending with NULL; the file is
 * that of the key "config". False: `why` says what is wrong. config_deinit in any case. */
bool config_load(struct config *c, const struct config_key *keys, void *into, char *const *args,
                 char *const *environment, struct buf *why);
void config_deinit(struct config *c);

/* Prints every value and its source, as an INI file. */
void config_print(const struct config *c, struct buf *out);
/* All keys with their defaults, for --help. */
void config_help(const struct config_key *keys, struct buf *out);

#endif
