/*
 * data_folder: the folder that one process owns while it runs. Holds the ledger, the token secret
 * and the admin key; made with mode 0700, its secrets with 0600.
 */
#ifndef ADMITONE_CLI_DATA_FOLDER_H
#define ADMITONE_CLI_DATA_FOLDER_H

#include "base/buf.h"

/* Creates the folder and its parents, if they do not exist. False: `why`. */
bool data_folder_make(const char *path, struct buf *why);

/* Takes the lock, which is held until the process ends or `*lock` is closed. False: `why` says
 * which process has `what` ("the data folder …"), or what failed. */
bool lock_take(const char *path, const char *what, int *lock, struct buf *why);
enum lock_state { LOCK_FREE, LOCK_TAKEN, LOCK_UNKNOWN };

/* Whether a process has the lock now; UNKNOWN when we may not look. */
enum lock_state lock_look(const char *path);

/* Reads the key in the file, or makes a random one when `make` and there is none. The key is
 * without white space around it. False: `why`. */
bool key_file_read(const char *path, bool make, struct buf *key, struct buf *why);

#endif
