/* The status of the feed in Kafka, and its dead letters: reading them, producing them again, and
 * marking them as handled. */
#include "feed/kafka_admin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "core/uuid.h"
#include "feed/kafka_message.h"

/* One question to a broker. */
#define CALL_MS 5000
/* Reading the dead letters fails when nothing comes for so long. */
#define IDLE_MS 10000
#define PRODUCE_MS 10000
/* So many dead letters are listed with their contents, and so much of each value. */
#define LETTERS_MAX 10000
#define VALUE_BYTES_MAX 1024

struct kafka_admin {
    struct feed_admin port;
    struct kafka_options options;
    struct kafka_link link;
    char topic[128];
    char dead_topic[128];
    char group[128];
    rd_kafka_t *consumer;
    rd_kafka_t *producer; /* NULL: nothing was produced yet */
    char failure[256];    /* of a connection, the last one; empty: none has failed */
};

static struct kafka_admin *admin_of(struct feed_admin *port) {
    return CONTAINER_OF(port, struct kafka_admin, port);
}

/* ---- failures ---- */

/* "sasl_ssl://host:9092/bootstrap: Connect to … failed: Connection refused (after 0ms in state …)",
 * without the part that is for developers. */
static void admin_on_failure(struct kafka_link *link, const char *reason) {
    struct kafka_admin *a = CONTAINER_OF(link, struct kafka_admin, link);
    snprintf(a->failure, sizeof a->failure, "%s", reason);
    char *state = strstr(a->failure, " (after ");
    if (state != NULL) *state = '\0';
}

/* What went wrong and what to do about it. */
static bool admin_fail(struct kafka_admin *a, const char *doing, const char *error,
                       struct buf *why) {
    /* The failures of connections are in a queue, until it is polled. */
    rd_kafka_message_t *m = rd_kafka_consumer_poll(a->consumer, 0);
    if (m != NULL) rd_kafka_message_destroy(m);
    if (a->producer != NULL) rd_kafka_poll(a->producer, 0);
    buf_addf(why, "cannot %s: Kafka at %s: %s", doing, a->options.brokers, error);
    if (a->failure[0] != '\0') buf_addf(why, " (%s)", a->failure);
    buf_add(why, STR(". Check that the broker runs, that this machine can reach it at that "
                     "address, and that --feed and the settings kafka.* are those of the nodes"));
    return false;
}

static bool admin_fail_with(struct kafka_admin *a, const char *doing, rd_kafka_resp_err_t err,
                            struct buf *why) {
    return admin_fail(a, doing, rd_kafka_err2str(err), why);
}

static bool admin_has_no_topic(struct kafka_admin *a, const char *topic, struct buf *why) {
    buf_addf(why,
             "Kafka at %s has no topic %s: the first node that is started with this --feed creates "
             "it. If nodes run, check that feed.topic_prefix is the same as theirs",
             a->options.brokers, topic);
    return false;
}

/* Waits for the result of a question to the admin interface. NULL: `error`. The caller destroys the
 * event. */
static rd_kafka_event_t *admin_result(rd_kafka_queue_t *queue, struct buf *error) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, CALL_MS + 1000);
    if (event == NULL) {
        buf_add(error, STR("no answer in time"));
    } else if (rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        buf_add(error, str_of(rd_kafka_event_error_string(event)));
        rd_kafka_event_destroy(event);
        event = NULL;
    }
    return event;
}

static rd_kafka_AdminOptions_t *admin_options(rd_kafka_t *rk, rd_kafka_admin_op_t op) {
    char text[128];
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, op);
    rd_kafka_AdminOptions_set_request_timeout(options, CALL_MS, text, sizeof text);
    return options;
}

/* ---- reading dead letters ---- */

struct admin_letter {
    int64_t id;
    bool is_handled;
    struct dead_letter *details; /* NULL: they are not wanted */
};

/* What the topic of dead letters has. */
struct admin_scan {
    int64_t begin; /* offsets */
    int64_t end;
    struct admin_letter *letters; /* in the order of their ids */
    size_t count;
    size_t cap;
    size_t open_count;
    size_t details_max;
    size_t details_count;
};

/* NULL: the message has no such header. */
static str admin_header(const rd_kafka_message_t *m, const char *name) {
    rd_kafka_headers_t *headers = NULL;
    const void *value = NULL;
    size_t len = 0;
    if (rd_kafka_message_headers(m, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        rd_kafka_header_get_last(headers, name, &value, &len) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return (str){NULL, 0};
    return (str){value, len};
}

static char *admin_request_id(const rd_kafka_message_t *m) {
    struct section_names names;
    struct buf why = {0};
    char text[UUID_TEXT_BYTES];
    struct request *r = kafka_message_read((str){m->payload, m->len}, 0, &names, &why);
    buf_deinit(&why);
    if (r == NULL) return NULL;
    uuid_format(&r->id, text);
    mem_free(r);
    return mem_copy_str((str){text, sizeof text});
}

static struct dead_letter *admin_details(const rd_kafka_message_t *m) {
    struct dead_letter *l = mem_new(sizeof *l);
    *l = (struct dead_letter){.id = m->offset,
                              .at_ms = rd_kafka_message_timestamp(m, NULL),
                              .reason = mem_copy_str(admin_header(m, "reason")),
                              .from = mem_copy_str(admin_header(m, "from")),
                              .request_id = admin_request_id(m),
                              .value_bytes = m->len};
    l->value_len = m->len < VALUE_BYTES_MAX ? m->len : VALUE_BYTES_MAX;
    if (l->value_len > 0) l->value = mem_copy_str((str){m->payload, l->value_len});
    return l;
}

static int admin_compare_ids(const void *id, const void *letter) {
    int64_t a = *(const int64_t *)id;
    int64_t b = ((const struct admin_letter *)letter)->id;
    return (a > b) - (a < b);
}

static struct admin_letter *admin_find(const struct admin_scan *s, int64_t id) {
    if (s->count == 0) return NULL;
    return bsearch(&id, s->letters, s->count, sizeof *s->letters, admin_compare_ids);
}

static void admin_close_letter(struct admin_scan *s, struct admin_letter *l) {
    if (l->is_handled) return;
    l->is_handled = true;
    s->open_count--;
    if (l->details == NULL) return;
    dead_letter_clear(l->details);
    mem_free(l->details);
    l->details = NULL;
    s->details_count--;
}

static bool admin_on_scanned(void *to, const rd_kafka_message_t *m, struct buf *why) {
    struct admin_scan *s = to;
    str handled = admin_header(m, "handled");
    int64_t id;
    (void)why;
    if (handled.at != NULL) {
        struct admin_letter *l = str_to_i64(handled, &id) ? admin_find(s, id) : NULL;
        if (l != NULL) admin_close_letter(s, l);
        return true;
    }
    if (s->count == s->cap) {
        s->cap = s->cap == 0 ? 64 : 2 * s->cap;
        s->letters = mem_grow(s->letters, s->cap * sizeof *s->letters);
    }
    struct admin_letter *l = &s->letters[s->count++];
    *l = (struct admin_letter){.id = m->offset};
    s->open_count++;
    if (s->details_count == s->details_max) return true;
    l->details = admin_details(m);
    s->details_count++;
    return true;
}

static void admin_scan_clear(struct admin_scan *s) {
    for (size_t i = 0; i < s->count; i++) {
        if (s->letters[i].details == NULL) continue;
        dead_letter_clear(s->letters[i].details);
        mem_free(s->letters[i].details);
    }
    mem_free(s->letters);
}

/* Calls `visit` with each message of the topic of dead letters from one offset to before another;
 * false of it ends the reading. */
static bool admin_read(struct kafka_admin *a, int64_t from, int64_t end,
                       bool (*visit)(void *to, const rd_kafka_message_t *m, struct buf *why),
                       void *to, struct buf *why) {
    if (from >= end) return true;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, a->dead_topic, 0)->offset = from;
    rd_kafka_resp_err_t err = rd_kafka_assign(a->consumer, list);
    rd_kafka_topic_partition_list_destroy(list);
    bool ok = err == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (!ok) admin_fail_with(a, "read the dead letters", err, why);
    int64_t until_ms = clock_steady_ms() + IDLE_MS;
    while (ok && from < end) {
        int64_t left_ms = until_ms - clock_steady_ms();
        if (left_ms <= 0) {
            ok = admin_fail(a, "read the dead letters", "nothing more comes", why);
            break;
        }
        rd_kafka_message_t *m = rd_kafka_consumer_poll(a->consumer, (int)left_ms);
        if (m == NULL) continue;
        if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            from = m->offset + 1;
            if (m->offset < end) ok = visit(to, m, why);
            until_ms = clock_steady_ms() + IDLE_MS;
        } else if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            from = m->offset;
        } else {
            snprintf(a->failure, sizeof a->failure, "%s", rd_kafka_message_errstr(m));
        }
        rd_kafka_message_destroy(m);
    }
    rd_kafka_assign(a->consumer, NULL);
    return ok;
}

static bool admin_scan(struct kafka_admin *a, size_t details_max, struct admin_scan *out,
                       struct buf *why) {
    *out = (struct admin_scan){.details_max = details_max};
    rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(a->consumer, a->dead_topic, 0,
                                                               &out->begin, &out->end, CALL_MS);
    if (err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION || err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
        err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        return admin_has_no_topic(a, a->dead_topic, why);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return admin_fail_with(a, "read the dead letters", err, why);
    return admin_read(a, out->begin, out->end, admin_on_scanned, out, why);
}

static bool admin_list(struct feed_admin *port, struct dead_letters *out, struct buf *why) {
    struct kafka_admin *a = admin_of(port);
    struct admin_scan scan;
    bool ok = admin_scan(a, LETTERS_MAX, &scan, why);
    *out = (struct dead_letters){0};
    if (ok) {
        out->open = mem_new((scan.details_count + 1) * sizeof *out->open);
        for (size_t i = 0; i < scan.count; i++) {
            struct admin_letter *l = &scan.letters[i];
            if (l->details == NULL) continue;
            out->open[out->count++] = *l->details;
            mem_free(l->details);
            l->details = NULL;
        }
        out->left_out = scan.open_count - out->count;
    }
    admin_scan_clear(&scan);
    return ok;
}

/* ---- producing ---- */

struct admin_sent {
    bool is_done;
    rd_kafka_resp_err_t err;
    int64_t offset;
};

/* Called by rd_kafka_poll. */
static void admin_on_delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *link) {
    struct admin_sent *s = m->_private;
    (void)rk;
    (void)link;
    *s = (struct admin_sent){.is_done = true, .err = m->err, .offset = m->offset};
}

/* Waits until the message is durable. `partition`: or RD_KAFKA_PARTITION_UA, by its key. `header`:
 * with the value `number`; NULL: none. */
static bool admin_produce(struct kafka_admin *a, const char *topic, int32_t partition,
                          const rd_kafka_message_t *m, const char *header, int64_t number,
                          int64_t *offset, struct buf *why) {
    struct admin_sent sent = {0};
    char text[24];
    int len = snprintf(text, sizeof text, "%lld", (long long)number);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
    if (header != NULL) rd_kafka_header_add(headers, header, -1, text, len);
    rd_kafka_resp_err_t err =
        rd_kafka_producev(a->producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
                          RD_KAFKA_V_KEY(m->key, m->key_len), RD_KAFKA_V_VALUE(m->payload, m->len),
                          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_OPAQUE(&sent), RD_KAFKA_V_END);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_headers_destroy(headers);
        return admin_fail_with(a, "produce a message", err, why);
    }
    while (!sent.is_done) rd_kafka_poll(a->producer, 100); /* it ends after PRODUCE_MS */
    if (sent.err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return admin_fail_with(a, "produce a message", sent.err, why);
    *offset = sent.offset;
    return true;
}

/* ---- handling dead letters ---- */

struct admin_work {
    struct kafka_admin *admin;
    struct dead_letter_handling *handling;
    struct admin_scan *scan;
};

static bool admin_is_wanted(const struct dead_letter_handling *h, int64_t id) {
    return h->id == DEAD_LETTERS_ALL || h->id == id;
}

/* Produces the message first, then the mark. */
static bool admin_on_wanted(void *to, const rd_kafka_message_t *m, struct buf *why) {
    struct admin_work *w = to;
    struct kafka_admin *a = w->admin;
    struct dead_letter_handling *h = w->handling;
    struct admin_letter *l = admin_find(w->scan, m->offset);
    if (l == NULL || l->is_handled || !admin_is_wanted(h, l->id)) return true;
    int64_t offset = 0;
    char *request_id = h->drops ? admin_request_id(m) : NULL;
    bool is_produced = !h->drops || request_id != NULL;
    mem_free(request_id);
    if (is_produced && !admin_produce(a, a->topic, RD_KAFKA_PARTITION_UA, m,
                                      h->drops ? "drop" : NULL, 1, &offset, why)) {
        buf_addf(why, ". Dead letter %lld is still open; trying again does no harm",
                 (long long)l->id);
        return false;
    }
    const rd_kafka_message_t mark = {0}; /* without key and value */
    if (!admin_produce(a, a->dead_topic, 0, &mark, "handled", l->id, &offset, why)) {
        buf_addf(why, ". Dead letter %lld may still be open; trying again does no harm",
                 (long long)l->id);
        return false;
    }
    /* Marks right behind what was scanned may be deleted with it; what is behind other messages is
     * left for the next time. */
    if (offset == w->scan->end) w->scan->end++;
    admin_close_letter(w->scan, l);
    h->done(h->to, l->id, is_produced ? DEAD_LETTER_PRODUCED : DEAD_LETTER_MARKED);
    return true;
}

/* Deletes what is before the first open letter. */
static void admin_trim(struct kafka_admin *a, const struct admin_scan *s, struct buf *note) {
    int64_t before = s->end;
    for (size_t i = 0; i < s->count && before == s->end; i++)
        if (!s->letters[i].is_handled) before = s->letters[i].id;
    if (before <= s->begin) return;
    struct buf error = {0};
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, a->dead_topic, 0)->offset = before;
    rd_kafka_DeleteRecords_t *deletion = rd_kafka_DeleteRecords_new(list);
    rd_kafka_AdminOptions_t *options = admin_options(a->consumer, RD_KAFKA_ADMIN_OP_DELETERECORDS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(a->consumer);
    rd_kafka_DeleteRecords(a->consumer, &deletion, 1, options, queue);
    rd_kafka_event_t *event = admin_result(queue, &error);
    if (event != NULL) {
        const rd_kafka_topic_partition_list_t *done =
            rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event));
        if (done->cnt == 1 && done->elems[0].err != RD_KAFKA_RESP_ERR_NO_ERROR)
            buf_add(&error, str_of(rd_kafka_err2str(done->elems[0].err)));
        rd_kafka_event_destroy(event);
    }
    if (error.len > 0)
        buf_addf(note, "handled messages could not be deleted from %s, and are ignored: %s",
                 a->dead_topic, buf_cstr(&error));
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_DeleteRecords_destroy(deletion);
    rd_kafka_topic_partition_list_destroy(list);
    buf_deinit(&error);
}

/* Those in the topic from its first offset on are known; what is before it was deleted, because it
 * had been handled. */
static bool admin_has_open(const struct admin_scan *s, struct dead_letter_handling *h) {
    if (h->id == DEAD_LETTERS_ALL) return s->open_count > 0;
    const struct admin_letter *l = admin_find(s, h->id);
    if (l != NULL && !l->is_handled) return true;
    bool was_there = l != NULL || (h->id >= 0 && h->id < s->begin);
    h->done(h->to, h->id, was_there ? DEAD_LETTER_WAS_CLOSED : DEAD_LETTER_ABSENT);
    return false;
}

static bool admin_handle(struct feed_admin *port, struct dead_letter_handling *h, struct buf *why) {
    struct kafka_admin *a = admin_of(port);
    struct admin_scan scan;
    bool ok = admin_scan(a, 0, &scan, why);
    if (ok && admin_has_open(&scan, h)) {
        struct admin_work work = {.admin = a, .handling = h, .scan = &scan};
        bool is_one = h->id != DEAD_LETTERS_ALL;
        int64_t from = is_one ? h->id : scan.begin;
        if (a->producer == NULL)
            a->producer =
                kafka_producer_new(&a->options, &a->link, admin_on_delivered, PRODUCE_MS, why);
        ok = a->producer != NULL &&
             admin_read(a, from, is_one ? from + 1 : scan.end, admin_on_wanted, &work, why);
        if (ok) admin_trim(a, &scan, &h->note);
    }
    admin_scan_clear(&scan);
    return ok;
}

/* ---- status ---- */

static struct feed_broker *admin_broker(struct feed_status *s,
                                        const struct rd_kafka_metadata *metadata, int32_t id) {
    for (int i = 0; i < metadata->broker_cnt; i++)
        if (metadata->brokers[i].id == id) return &s->brokers[i];
    return NULL;
}

/* The end of each partition. A broker that does not answer is asked once. */
static void admin_read_ends(struct kafka_admin *a, const struct rd_kafka_metadata *metadata,
                            struct feed_status *out) {
    const struct rd_kafka_metadata_topic *topic = &metadata->topics[0];
    out->partition_count = (size_t)topic->partition_cnt;
    out->partitions = mem_new(out->partition_count * sizeof *out->partitions);
    for (size_t i = 0; i < out->partition_count; i++) {
        struct feed_partition *p = &out->partitions[i];
        struct feed_broker *leader = admin_broker(out, metadata, topic->partitions[i].leader);
        int64_t begin = 0;
        *p = (struct feed_partition){
            .number = topic->partitions[i].id, .committed = -1, .member = -1};
        if (leader == NULL || leader->has_failed) continue;
        p->is_known =
            rd_kafka_query_watermark_offsets(a->consumer, a->topic, p->number, &begin, &p->end,
                                             CALL_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
        leader->has_failed = !p->is_known;
        p->lag = p->is_known ? p->end - begin : 0; /* if nothing is committed */
    }
}

static bool admin_read_topic(struct kafka_admin *a, struct feed_status *out, struct buf *why) {
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(a->consumer, a->topic, NULL);
    if (topic == NULL) return admin_fail_with(a, "ask", rd_kafka_last_error(), why);
    rd_kafka_resp_err_t err = rd_kafka_metadata(a->consumer, 0, topic, &metadata, CALL_MS);
    rd_kafka_topic_destroy(topic);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) return admin_fail_with(a, "ask", err, why);
    bool has_topic = metadata->topic_cnt == 1 && metadata->topics[0].partition_cnt > 0;
    if (has_topic) {
        struct buf address = {0};
        out->broker_count = (size_t)metadata->broker_cnt;
        out->brokers = mem_new((out->broker_count + 1) * sizeof *out->brokers);
        for (size_t i = 0; i < out->broker_count; i++) {
            buf_clear(&address);
            buf_addf(&address, "%s:%d", metadata->brokers[i].host, metadata->brokers[i].port);
            out->brokers[i].address = mem_copy_str(buf_str(&address));
        }
        buf_deinit(&address);
        admin_read_ends(a, metadata, out);
    }
    rd_kafka_metadata_destroy(metadata);
    return has_topic || admin_has_no_topic(a, a->topic, why);
}

static struct feed_partition *admin_partition(struct feed_status *s, int32_t number) {
    for (size_t i = 0; i < s->partition_count; i++)
        if (s->partitions[i].number == number) return &s->partitions[i];
    return NULL;
}

static bool admin_read_committed(struct kafka_admin *a, struct feed_status *out, struct buf *why) {
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new((int)out->partition_count);
    for (size_t i = 0; i < out->partition_count; i++)
        rd_kafka_topic_partition_list_add(list, a->topic, out->partitions[i].number);
    rd_kafka_resp_err_t err = rd_kafka_committed(a->consumer, list, CALL_MS);
    for (int i = 0; err == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++) {
        struct feed_partition *p = admin_partition(out, list->elems[i].partition);
        int64_t committed = list->elems[i].offset;
        if (p == NULL || committed < 0) continue;
        p->committed = committed;
        /* What the broker has deleted before it was decided does not count. */
        if (p->is_known && p->end - committed < p->lag) p->lag = p->end - committed;
        if (p->lag < 0) p->lag = 0;
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) return true;
    return admin_fail_with(a, "read the committed offsets", err, why);
}

static void admin_copy_members(struct kafka_admin *a,
                               const rd_kafka_ConsumerGroupDescription_t *group,
                               struct feed_status *out) {
    out->member_count = rd_kafka_ConsumerGroupDescription_member_count(group);
    out->members = mem_new((out->member_count + 1) * sizeof *out->members);
    for (size_t i = 0; i < out->member_count; i++) {
        const rd_kafka_MemberDescription_t *m = rd_kafka_ConsumerGroupDescription_member(group, i);
        const rd_kafka_MemberAssignment_t *assignment = rd_kafka_MemberDescription_assignment(m);
        const rd_kafka_topic_partition_list_t *list =
            assignment == NULL ? NULL : rd_kafka_MemberAssignment_partitions(assignment);
        str host = str_of(rd_kafka_MemberDescription_host(m));
        if (str_starts(host, STR("/"))) host = str_skip(host, 1); /* as Java writes an address */
        out->members[i].host = mem_copy_str(host);
        out->members[i].id = mem_copy_str(str_of(rd_kafka_MemberDescription_consumer_id(m)));
        for (int j = 0; list != NULL && j < list->cnt; j++) {
            bool is_ours = strcmp(list->elems[j].topic, a->topic) == 0;
            struct feed_partition *p =
                is_ours ? admin_partition(out, list->elems[j].partition) : NULL;
            if (p == NULL) continue;
            p->member = (int)i;
            out->members[i].partition_count++;
        }
    }
}

/* A question that brokers may refuse: then the rest of the status is shown all the same. */
static void admin_read_members(struct kafka_admin *a, struct feed_status *out) {
    const char *groups[] = {a->group};
    struct buf error = {0};
    size_t count = 0;
    rd_kafka_AdminOptions_t *options =
        admin_options(a->consumer, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(a->consumer);
    rd_kafka_DescribeConsumerGroups(a->consumer, groups, 1, options, queue);
    rd_kafka_event_t *event = admin_result(queue, &error);
    if (event != NULL) {
        const rd_kafka_ConsumerGroupDescription_t **described =
            rd_kafka_DescribeConsumerGroups_result_groups(
                rd_kafka_event_DescribeConsumerGroups_result(event), &count);
        const rd_kafka_error_t *refused =
            count == 1 ? rd_kafka_ConsumerGroupDescription_error(described[0]) : NULL;
        if (refused != NULL)
            buf_add(&error, str_of(rd_kafka_error_string(refused)));
        else if (count == 1)
            admin_copy_members(a, described[0], out);
        rd_kafka_event_destroy(event);
    }
    if (error.len > 0) out->members_unknown = mem_copy_str(buf_str(&error));
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    buf_deinit(&error);
}

static bool admin_status(struct feed_admin *port, struct feed_status *out, struct buf *why) {
    struct kafka_admin *a = admin_of(port);
    struct admin_scan scan = {0};
    *out = (struct feed_status){0};
    bool ok = admin_read_topic(a, out, why) && admin_read_committed(a, out, why) &&
              admin_scan(a, 0, &scan, why);
    if (ok) admin_read_members(a, out);
    out->dead_letters = scan.open_count;
    admin_scan_clear(&scan);
    return ok;
}

/* ---- start and stop ---- */

static void admin_close(struct feed_admin *port) {
    struct kafka_admin *a = admin_of(port);
    if (a->producer != NULL) rd_kafka_destroy(a->producer);
    if (a->consumer != NULL) rd_kafka_destroy(a->consumer);
    kafka_link_deinit(&a->link);
    mem_free(a);
}

struct feed_admin *kafka_admin_new(const struct kafka_options *options, struct buf *why) {
    static const struct feed_admin_ops ops = {
        .status = admin_status, .list = admin_list, .handle = admin_handle, .close = admin_close};
    struct kafka_admin *a = mem_new(sizeof *a);
    a->options = *options;
    snprintf(a->topic, sizeof a->topic, "%s%s", options->prefix, KAFKA_TOPIC_REQUESTS);
    snprintf(a->dead_topic, sizeof a->dead_topic, "%s%s", options->prefix, KAFKA_TOPIC_DEAD);
    snprintf(a->group, sizeof a->group, "%s%s", options->prefix, KAFKA_GROUP);
    a->port = (struct feed_admin){
        .ops = &ops, .place = options->brokers, .topic = a->topic, .group = a->group};
    kafka_link_init(&a->link, options->brokers);
    a->link.reported = admin_on_failure;
    /* It asks for the offsets of the group, and is no member of it: it assigns partitions itself.
     */
    const struct config_pair own[] = {{"group.id", a->group},
                                      {"enable.auto.commit", "false"},
                                      {"enable.auto.offset.store", "false"},
                                      {"auto.offset.reset", "earliest"},
                                      {"enable.partition.eof", "true"},
                                      {"fetch.wait.max.ms", "100"},
                                      {NULL, NULL}};
    a->consumer = kafka_consumer_new(&a->options, &a->link, own, NULL, why);
    if (a->consumer != NULL) return &a->port;
    admin_close(&a->port);
    return NULL;
}
