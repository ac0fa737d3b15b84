/*
 * data_folder: the folder that one process owns while it runs. Holds the ledger, the token secret
 * and the admin key; made with mode 0700, its secrets with 0600.
 */
#ifndef ADMITONE_CLI_DATA_FOLDER_H
#define ADMITONE_CLI_DATA_FOLDER_H

#include <sys/stat.h>

#include "base/buf.h"

/* Creates the folder and its parents, if they do not exist. False: `why`. */
bool data_folder_make(const char *path, struct buf *why);

/* Locks the folder or file at `path` itself, whatever it is called or linked as, until the process
 * ends or `*lock` is closed; the process's number is written to the file `pid_path`. False: `why`
 * says which process has `what` ("the data folder …"), or what failed. For a ledger: before SQLite
 * opens it and after, because closing a file drops SQLite's locks on it. */
bool lock_take(const char *path, const char *pid_path, const char *what, int *lock,
               struct buf *why);
enum lock_state { LOCK_FREE, LOCK_TAKEN, LOCK_UNKNOWN };

/* Whether a process has the lock now; UNKNOWN when we may not look. For a ledger: before SQLite
 * opens it. */
enum lock_state lock_look(const char *path);

/* Reads a file of at most `max` bytes that only its owner can read; `about` (may be NULL) describes
 * what was read. False: `why`. */
bool secret_file_read(const char *path, size_t max, struct buf *text, struct stat *about,
                      struct buf *why);
/* Replaces the file, or creates it, so that no process reads half of it. It belongs to the owner of
 * the file that it replaces, or else of the folder. False: `why`. */
bool secret_file_write(const char *path, str text, struct buf *why);

/* Reads the key in the file, or makes a random one when `make` and there is none. The key is
 * without white space around it. False: `why`. */
bool key_file_read(const char *path, bool make, struct buf *key, struct buf *why);

#endif
