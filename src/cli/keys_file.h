/*
 * keys_file: the file of named keys (core/key_ring.h): reads it, and follows its changes while the
 * server runs. A file that cannot be read, or that has a mistake, is reported once, and the keys
 * that were read before stay in force. On the main thread.
 */
#ifndef ADMITONE_CLI_KEYS_FILE_H
#define ADMITONE_CLI_KEYS_FILE_H

#include <sys/stat.h>

#include <uv.h>

#include "api/keys.h"
#include "cli/settings.h"

struct keys_file {
    struct buf path;
    struct keys *keys; /* where they are put in force */
    /* The server's own keys, each with the name of its setting: no key of the file may be one. */
    struct key_ring server_keys;

    /* Private. */
    struct key_ring ring; /* those in force */
    struct stat seen;     /* the file when it was last read; zeroes: there was none */
    uv_timer_t timer;
};

/* The file's path: keys_file, or "keys" in the data folder. */
void keys_file_path(const struct settings *set, struct buf *out);
/* Reads the keys and appends the text. The file may be missing, unless it is `required`: then there
 * are no keys. False: `why`. */
bool keys_file_read(const char *path, bool required, struct key_ring *ring, struct buf *text,
                    struct stat *about, struct buf *why);

/* Reads it for the first time, and puts its keys in force. A file that is set must be there.
 * `server_keys` is set before. */
bool keys_file_open(struct keys_file *f, const struct settings *set, struct keys *keys,
                    struct buf *why);
/* From now on, looks for changes. */
void keys_file_follow(struct keys_file *f, uv_loop_t *loop);
/* Before the loop ends. */
void keys_file_stop(struct keys_file *f);
void keys_file_deinit(struct keys_file *f);

#endif
