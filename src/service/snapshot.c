/* The refresh of the snapshot, and the requests that wait for it. */
#include "service/snapshot.h"

#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "run/mailbox.h"

static void snapshot_on_event(struct event_counts_op *c, const struct event_counts *e);
static void snapshot_on_events_counted(struct event_counts_op *c);
static void snapshot_on_refreshed(struct task *task);

static void snapshot_refresh(struct snapshot *s, int64_t since_ms) {
    s->counts = (struct event_counts_op){.since_ms = since_ms,
                                         .now_ms = clock_wall_ms(),
                                         .event = snapshot_on_event,
                                         .done = snapshot_on_events_counted};
    hot_count_events(s->hot, &s->counts);
}

void snapshot_read(struct snapshot *s, struct snapshot_read *r) {
    int64_t now_ms = clock_steady_ms();
    r->task = (struct task){.run = snapshot_on_refreshed, .home = mailbox_mine()};
    snapshot_lock(s);
    bool is_fresh = s->refreshed_ms != 0 && now_ms - s->refreshed_ms < SNAPSHOT_MS;
    bool answers = is_fresh && !s->refreshing;
    bool begins = !answers && !s->refreshing;
    if (!answers) task_list_add(&s->readers, &r->task);
    if (begins) {
        s->refreshing = true;
        s->refreshed_ms = now_ms;
    }
    int64_t since_ms = s->until_ms;
    snapshot_unlock(s);
    if (answers) r->done(r, ERR_OK);
    if (begins) snapshot_refresh(s, since_ms);
}

static void snapshot_on_event(struct event_counts_op *c, const struct event_counts *e) {
    struct snapshot *s = CONTAINER_OF(c, struct snapshot, counts);
    size_t bytes = e->section_count * sizeof *e->sections;
    struct snapshot_row *row = mem_new(sizeof *row + bytes);
    row->event_key = e->event_key;
    row->queue = e->queue;
    row->section_count = e->section_count;
    if (bytes > 0) memcpy(row->sections, e->sections, bytes);
    snapshot_lock(s);
    mem_free(map_put(&s->rows, map_key(&row->event_key), row));
    snapshot_unlock(s);
}

/* Rows of events that were deleted. Under lock; only the thread that refreshes changes rows. */
static void snapshot_forget_deleted(struct snapshot *s) {
    size_t gone_count = 0;
    int64_t *gone = mem_new((s->rows.count + 1) * sizeof *gone);
    const struct snapshot_row *row;
    catalogue_read_lock(s->catalogue);
    for (size_t at = 0; (row = map_next(&s->rows, &at)) != NULL;)
        if (catalogue_find_key(s->catalogue, row->event_key) == NULL)
            gone[gone_count++] = row->event_key;
    catalogue_read_unlock(s->catalogue);
    for (size_t i = 0; i < gone_count; i++) mem_free(map_remove(&s->rows, map_key(&gone[i])));
    mem_free(gone);
}

static void snapshot_on_events_counted(struct event_counts_op *c) {
    struct snapshot *s = CONTAINER_OF(c, struct snapshot, counts);
    if (c->result == ERR_OK && c->epoch != s->epoch && c->since_ms != 0) {
        snapshot_refresh(s, 0); /* the store was rebuilt: what changed since is not known */
        return;
    }
    size_t event_count = catalogue_count(s->catalogue);
    enum err result = c->result == ERR_HOT_UNKNOWN ? ERR_HOT_UNAVAILABLE : c->result;
    struct task_list readers;
    snapshot_lock(s);
    if (c->result == ERR_OK) {
        s->epoch = c->epoch;
        s->until_ms = c->until_ms;
        if (s->rows.count > event_count) snapshot_forget_deleted(s);
    } else {
        s->refreshed_ms = 0;
    }
    s->refreshing = false;
    readers = s->readers;
    s->readers = (struct task_list){0};
    snapshot_unlock(s);
    struct task *task;
    while ((task = task_list_take(&readers)) != NULL) {
        CONTAINER_OF(task, struct snapshot_read, task)->result = result;
        mailbox_post(task->home, task);
    }
}

static void snapshot_on_refreshed(struct task *task) {
    struct snapshot_read *r = CONTAINER_OF(task, struct snapshot_read, task);
    r->done(r, r->result);
}

void snapshot_lock(struct snapshot *s) {
    pthread_mutex_lock(&s->lock);
}

void snapshot_unlock(struct snapshot *s) {
    pthread_mutex_unlock(&s->lock);
}

const struct snapshot_row *snapshot_find(struct snapshot *s, int64_t event_key) {
    return map_get(&s->rows, map_key(&event_key));
}

void snapshot_init(struct snapshot *s) {
    pthread_mutex_init(&s->lock, NULL);
    map_init(&s->rows);
}

void snapshot_deinit(struct snapshot *s) {
    struct snapshot_row *row;
    for (size_t at = 0; (row = map_next(&s->rows, &at)) != NULL;) mem_free(row);
    map_deinit(&s->rows);
    pthread_mutex_destroy(&s->lock);
}
