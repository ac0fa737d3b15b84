/*
 * queue_model: one event's queue in its simplest form: arrays, linear scans, one rule per function.
 * Seeded random histories on a real queue are compared with it, in core/ and through the port.
 * Users are numbers; the clock is a field.
 */
#ifndef ADMITONE_TEST_QUEUE_MODEL_H
#define ADMITONE_TEST_QUEUE_MODEL_H

#include "core/queue.h"

#define MODEL_USERS 120
#define MODEL_SEQ_MOST 400000
#define MODEL_LIVE_MOST MODEL_USERS

enum model_pending { SETTLED, ENTER_PENDING, ADMIT_PENDING };

struct model_entry {
    enum entry_status status; /* NONE: never was, or undone */
    enum model_pending pending;
    int user;
    unsigned lane;
    int64_t joined_ms;
    int64_t expires_ms;
    int64_t seen_ms;
    int64_t promised_s; /* -1: nothing was */
};

struct model {
    int64_t now_ms;
    struct queue_config config;
    struct model_entry entries[MODEL_SEQ_MOST]; /* by seq */
    uint64_t live[MODEL_LIVE_MOST];             /* seqs, in order */
    size_t live_count;
    uint64_t next_seq;
    int64_t grace_from_ms;
    bool grace_is_shorter;
    int64_t swept_ms;
    int64_t admitting_ms; /* the interval of those whose admission is pending */
    int64_t interval_ms;
    int64_t interval_used;
    struct queue_counts totals; /* without the waiting and the active entries */
    int64_t rate_from_ms;
    int64_t rate_admitted;
};

/* Names of many lengths, of which some begin alike. */
str model_user_name(int user, char out[80]);

struct model_entry *model_live(struct model *m, size_t i);
uint64_t model_waiting(struct model *m);
uint64_t model_active(struct model *m);
/* The user's live entry; 0: none. */
uint64_t model_find(struct model *m, int user);
bool model_is_live(const struct model *m, uint64_t seq);
enum event_state model_state(const struct model *m);
/* Whether the time is at or after closesAt. */
bool model_is_over(const struct model *m);
bool model_gate_is_open(const struct model *m);
int64_t model_batch_left(struct model *m);
uint64_t model_position(struct model *m, uint64_t seq);
int64_t model_estimate(const struct model *m, uint64_t position);
struct place model_place(struct model *m, uint64_t seq);
bool model_is_swept(const struct model *m, const struct model_entry *e);

/* The steps. */
enum enter_outcome model_enter(struct model *m, int user, unsigned lane, uint64_t *seq);
void model_settle_enter(struct model *m, uint64_t seq, bool kept);
void model_settle_admit(struct model *m, uint64_t seq, bool kept);
void model_rate_update(struct model *m);
/* The entry that is admitted next: the first settled one of the lowest lane, unless one before it
 * in the lane is still entering; 0: none. */
uint64_t model_next(struct model *m);
/* Whether a step of admission may begin: none is under way. */
bool model_may_begin(struct model *m);
/* Whether the rules let one more in now. */
bool model_may_admit(struct model *m);
struct entry_change model_admit(struct model *m, uint64_t seq);
/* The active whose time was over first; 0: none. */
uint64_t model_overdue(struct model *m);
/* Whether it ends so. */
bool model_end(struct model *m, uint64_t seq, enum entry_status final);
void model_seen(struct model *m, uint64_t seq);
void model_grace_anew(struct model *m);
/* The first step of every sweep. */
void model_sweep_begins(struct model *m);
void model_configure(struct model *m, const struct queue_config *c);
/* The process dies and restarts: pending enters are lost, pending admissions never happened. */
void model_restart(struct model *m);

#endif
