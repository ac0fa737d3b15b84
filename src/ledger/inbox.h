/*
 * inbox: the bounded queue of records for the threads of a ledger. Workers put records in, on
 * threads that have a mailbox; one or several threads take them out, in order.
 */
#ifndef ADMITONE_LEDGER_INBOX_H
#define ADMITONE_LEDGER_INBOX_H

#include <pthread.h>

#include "port/ledger.h"

struct inbox {
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct task_list records; /* under lock */
    size_t records_max;
    size_t wake_at; /* under lock: this many records wake the waiting thread */
    bool closed;    /* under lock */
};

/* How large the last batches were. Older ones count less and less. */
struct batch_history {
    size_t records;  /* of the largest */
    int64_t took_ns; /* and how long it took to write it */
};

void inbox_init(struct inbox *in, int64_t records_max);
void inbox_deinit(struct inbox *in);
/* No record is taken in any more; waiting threads wake. */
void inbox_close(struct inbox *in);
/* Notes the record's home, and the time. ERR_OVERLOADED or ERR_STOPPING when it is not taken. */
enum err inbox_put(struct inbox *in, struct ledger_record *r);
/* Adds a record that another inbox has accepted before, also when this one is full. The inbox is
 * not closed. */
void inbox_pass(struct inbox *in, struct ledger_record *r);
/* Waits until there is a record, the inbox is closed, or the steady time `until_ns` has come.
 * Returns how many it took; *ended says that it is closed and empty. */
size_t inbox_take(struct inbox *in, struct ledger_record **out, size_t max, int64_t until_ns,
                  bool *ended);
/* The same for a thread that commits what it takes as one batch. Under load the answers of a batch
 * bring the requests of the next, a moment after the commit: waiting for them, once the first has
 * come, makes fewer and larger batches. It waits until there are twice as many as before, for half
 * the time that a batch takes, at most 2 ms. For an inbox with one taker. */
size_t inbox_take_batch(struct inbox *in, const struct batch_history *history,
                        struct ledger_record **out, size_t max, int64_t until_ns, bool *ended);
/* The batch that was taken has been written. */
void batch_history_add(struct batch_history *history, size_t taken, int64_t took_ns);
bool inbox_empty(struct inbox *in);

#endif
