/*
 * sync_recorder: hooks of sync_vfs for tests: records the WAL's writes and syncs, can delay syncs,
 * and can make them fail. One per process; safe from any thread.
 */
#ifndef ADMITONE_TEST_SYNC_RECORDER_H
#define ADMITONE_TEST_SYNC_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Registers the file layer; the first thing that a test program does. */
void sync_recorder_register(void);

/* While closed, syncs of the WAL wait. Returns from sync_gate_close at once. */
void sync_gate_close(void);
void sync_gate_open(void);
/* Whether a sync waits at the gate now. */
bool sync_gate_waits(void);

/* From now on writes to the database and the WAL (but for the first `spared` of them), or syncs of
 * the WAL, fail with this SQLite code; 0: no longer. */
void sync_fail_writes(int rc, int spared);
void sync_fail_syncs(int rc);

/* Watches for a write to the WAL that contains this text, which stays the caller's; NULL: no
 * longer. */
#define SYNC_NEEDLES_MAX 256
void sync_watch(size_t needle, const char *text);
/* Whether the text was written to the WAL, a sync of it began after that write and ended, and
 * that was before `steady_ns`. */
bool sync_proven(size_t needle, int64_t steady_ns);

/* How many syncs of the WAL have ended. */
size_t sync_count(void);

#endif
