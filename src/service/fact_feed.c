/* Reads pages of facts, and asks again for those that wait for the next one. */
#include "service/fact_feed.h"

#include <assert.h>

#include "base/clock.h"

/* How often a waiting read is asked again. */
#define ASK_AGAIN_MS 250
/* Of one worker. Followers are few: each is another system, with one request at a time. */
#define WAITING_MAX 32

static void fact_read_on_page(struct task *task);

static void fact_read_end(struct fact_read *read, enum err result) {
    struct fact_feed *f = read->feed;
    if (read->has_waited) {
        assert(f->waiting_count > 0);
        f->waiting_count--;
    }
    if (f->waiting_count == 0) ticker_stop(&f->ticker);
    read->done(read, result);
}

static void fact_read_ask(struct fact_read *read) {
    enum err refused = ledger_ask(read->feed->ledger, &read->page.record);
    if (refused != ERR_OK) fact_read_end(read, refused);
}

void fact_feed_read(struct fact_feed *f, struct fact_read *read) {
    assert(read->wait_ms >= 0 && read->wait_ms <= FACT_WAIT_MS_MAX && read->done != NULL);
    read->feed = f;
    read->has_waited = false;
    read->until_ms = clock_steady_ms() + read->wait_ms;
    list_init(&read->link);
    read->page.record.kind = LEDGER_FACTS_PAGE;
    read->page.record.task.run = fact_read_on_page;
    fact_read_ask(read);
}

static bool fact_read_is_over(const struct fact_read *read) {
    return read->feed->is_draining || read->is_abandoned(read) ||
           clock_steady_ms() >= read->until_ms;
}

static void fact_read_on_page(struct task *task) {
    struct fact_read *read = CONTAINER_OF(task, struct fact_read, page.record.task);
    struct fact_feed *f = read->feed;
    enum err result = read->page.record.result;
    if (result != ERR_OK || read->page.count > 0 || fact_read_is_over(read)) {
        fact_read_end(read, result);
        return;
    }
    if (!read->has_waited && f->waiting_count == WAITING_MAX) {
        fact_read_end(read, ERR_OVERLOADED);
        return;
    }
    if (!read->has_waited) f->waiting_count++;
    read->has_waited = true;
    read->page.after = read->page.mark; /* facts that could not be read are not read again */
    list_move_last(&f->waiting, &read->link);
    if (!ticker_runs(&f->ticker)) ticker_start(&f->ticker, ASK_AGAIN_MS);
}

/* The reads are taken out of the list first: one that ends may make room for a new one. */
static void fact_feed_on_tick(void *to) {
    struct fact_feed *f = to;
    struct list due;
    list_init(&due);
    while (!list_empty(&f->waiting)) list_move_last(&due, f->waiting.next);
    while (!list_empty(&due)) {
        struct fact_read *read = CONTAINER_OF(due.next, struct fact_read, link);
        list_remove(&read->link);
        if (fact_read_is_over(read))
            fact_read_end(read, ERR_OK);
        else
            fact_read_ask(read);
    }
}

void fact_feed_init(struct fact_feed *f, uv_loop_t *loop) {
    assert(f->ledger != NULL);
    list_init(&f->waiting);
    ticker_init(&f->ticker, loop, fact_feed_on_tick, f);
}

void fact_feed_drain(struct fact_feed *f) {
    f->is_draining = true;
    fact_feed_on_tick(f);
}

void fact_feed_close(struct fact_feed *f) {
    assert(f->waiting_count == 0 && list_empty(&f->waiting));
    ticker_close(&f->ticker);
}

static void fact_name_to_json(struct json_out *j, str key, const char *name) {
    if (name[0] == '\0')
        json_out_null(j, key);
    else
        json_out_str(j, key, str_of(name));
}

static void fact_reservation_to_json(struct json_out *j, const struct fact *f) {
    char id[UUID_TEXT_BYTES];
    if (f->kind == FACT_SOLD_OUT) {
        json_out_null(j, STR("reservationId"));
    } else {
        uuid_format(&f->reservation, id);
        json_out_str(j, STR("reservationId"), (str){id, sizeof id});
    }
    fact_name_to_json(j, STR("userId"), f->user);
    json_out_i64(j, STR("seatCount"), f->seat_count);
    if (f->seats == NULL) {
        json_out_null(j, STR("seats"));
    } else {
        json_out_array(j, STR("seats"));
        for (uint32_t i = 0; i < f->seat_count; i++) json_out_i64(j, STR(""), f->seats[i]);
        json_out_array_end(j);
    }
    if (f->currency[0] == '\0')
        json_out_null(j, STR("price"));
    else
        json_out_i64(j, STR("price"), f->price);
    fact_name_to_json(j, STR("currency"), f->currency);
}

void fact_to_json(struct json_out *j, const struct fact *f) {
    struct buf id = {0};
    buf_add_i64(&id, f->mark.id);
    json_out_object(j, STR(""));
    json_out_i64(j, STR("version"), FACT_JSON_VERSION);
    json_out_str(j, STR("id"), buf_str(&id));
    json_out_str(j, STR("kind"), fact_kind_words[f->kind]);
    json_out_time(j, STR("at"), f->at_ms);
    fact_name_to_json(j, STR("eventType"), f->event_type);
    fact_name_to_json(j, STR("eventId"), f->event_id);
    fact_name_to_json(j, STR("section"), f->section);
    fact_reservation_to_json(j, f);
    json_out_object_end(j);
    buf_deinit(&id);
}
