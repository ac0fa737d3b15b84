/*
 * data_folder: the folder that one process owns while it runs. Holds the ledger, the token secret
 * and the admin key; made with mode 0700, its secrets with 0600.
 */
#ifndef ADMITONE_CLI_DATA_FOLDER_H
#define ADMITONE_CLI_DATA_FOLDER_H

#include "base/buf.h"

struct data_folder {
    int lock; /* the open lock file, or -1 */
};

/* Makes the folder if need be and takes its lock. False: `why` says who has it, or what failed. */
bool data_folder_own(struct data_folder *f, const char *path, struct buf *why);
void data_folder_leave(struct data_folder *f);

/* Whether a process owns the folder now. */
bool data_folder_is_owned(const char *path);

/* Reads the key in the file, or makes a random one when `make` and there is none. The key is
 * without white space around it. False: `why`. */
bool key_file_read(const char *path, bool make, struct buf *key, struct buf *why);

#endif
