/* The feed's contract on a real Kafka broker; without one; and what only this feed does. */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "feed/kafka.h"
#include "feed/kafka_admin.h"
#include "feed_suite.h"
#include "ledger_client.h"
#include "ledger_raw.h"
#include "service/requests.h"
#include "services.h"

#define PARTITIONS 8

/* librdkafka is not instrumented, and passes objects on by reference counts that TSan does not see.
 * Its calls of the C library are ignored; its locks are those of support/c11_threads.c, and how it
 * passes on the locks themselves is ignored too. */
#if defined(__SANITIZE_THREAD__)
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
    return "called_from_lib:librdkafka.so.1\nrace:mtx_init\nrace:mtx_lock\n";
}
#endif

/* Used instead of that of librdkafka, so that a test gets the feed's producer. */
static rd_kafka_t *_Atomic last_producer;

rd_kafka_t *rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *error, size_t size) {
    rd_kafka_t *(*create)(rd_kafka_type_t, rd_kafka_conf_t *, char *, size_t);
    *(void **)&create = dlsym(RTLD_NEXT, "rd_kafka_new");
    rd_kafka_t *made = create(type, conf, error, size);
    if (type == RD_KAFKA_PRODUCER) atomic_store(&last_producer, made);
    return made;
}

/* The same for the question for a topic: so many of the next answers say that there is none, as
 * those of a broker that has not heard yet of its creation. */
static _Atomic int hidden_answers;

rd_kafka_resp_err_t rd_kafka_metadata(rd_kafka_t *rk, int all, rd_kafka_topic_t *only,
                                      const struct rd_kafka_metadata **out, int timeout_ms) {
    rd_kafka_resp_err_t (*ask)(rd_kafka_t *, int, rd_kafka_topic_t *,
                               const struct rd_kafka_metadata **, int);
    *(void **)&ask = dlsym(RTLD_NEXT, "rd_kafka_metadata");
    rd_kafka_resp_err_t err = ask(rk, all, only, out, timeout_ms);
    bool is_hidden = err == RD_KAFKA_RESP_ERR_NO_ERROR && only != NULL &&
                     atomic_load(&hidden_answers) > 0 && (*out)->topic_cnt == 1;
    if (is_hidden) {
        atomic_fetch_sub(&hidden_answers, 1);
        (*out)->topics[0].err = RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    }
    return err;
}

/* Each test has topics and a group of its own. */
static char prefix[32];

static void begin(void) {
    static int number;
    services_start(SERVICE_KAFKA);
    snprintf(prefix, sizeof prefix, "test-%d.", ++number);
}

static struct ledger *open_sqlite(struct harness *h, int64_t queue_max) {
    return raw_ledger_open(
        &(struct sqlite_ledger_options){.path = h->path, .queue_max = queue_max});
}

static const char *broker(void) {
    return services_start(SERVICE_KAFKA)->kafka_url + strlen("kafka://");
}

static struct kafka_options options_at(const char *brokers) {
    static const struct config_pair settings[] = {{"session.timeout.ms", "6000"},
                                                  {"topic.metadata.refresh.interval.ms", "1000"},
                                                  {NULL, NULL}};
    return (struct kafka_options){
        .brokers = brokers, .settings = settings, .partitions = PARTITIONS, .prefix = prefix};
}

static struct feed *open_at(const char *brokers, size_t workers) {
    struct kafka_options options = options_at(brokers);
    struct buf why = {0};
    struct feed *f = kafka_feed_new(&options, workers, true, &why);
    if (f == NULL) fail_msg("%s", buf_cstr(&why));
    buf_deinit(&why);
    return f;
}

static struct feed *open_feed(struct ledger *l, size_t workers) {
    (void)l;
    return open_at(broker(), workers);
}

/* The partition follows from the key, which is the names. */
static void name_section(int partition, struct section_names *out) {
    assert_in_range(partition, 0, PARTITIONS - 1);
    for (int i = 0;; i++) {
        char key[128];
        snprintf(out->section, sizeof out->section, "S%d", i);
        int len = snprintf(key, sizeof key, "%s/%s/%s", out->type, out->id, out->section);
        if (rd_kafka_msg_partitioner_murmur2(NULL, key, (size_t)len, PARTITIONS, NULL, NULL) ==
            partition)
            return;
    }
}

/* ---- without a broker ---- */

struct answer {
    struct feed_publish publish;
    struct feed_look look;
    enum err looked;
    bool is_published;
    bool is_looked;
};

static void on_published(struct feed_publish *p) {
    CONTAINER_OF(p, struct answer, publish)->is_published = true;
}

static void on_looked(struct feed_look *l, enum err result) {
    struct answer *a = CONTAINER_OF(l, struct answer, look);
    a->looked = result;
    a->is_looked = true;
}

static bool is_answered(void *arg) {
    const struct answer *a = arg;
    return a->is_published && a->is_looked;
}

static void without_a_broker_nothing_is_accepted_and_nothing_said_to_be_missing(void **state) {
    (void)state;
    struct harness h;
    struct request request = {.user = "a", .quantity = 1, .finished_ms = CLOCK_NONE_MS};
    struct section_names names = {"CONCERT", "1", "A"};
    struct request *found = NULL;
    int64_t ahead = 0;
    harness_init(&h);
    struct feed *f = open_at("127.0.0.1:1", 2);
    struct answer a = {
        .publish = {.request = &request, .names = &names, .done = on_published},
        .look = {
            .ids = &request.id, .count = 1, .found = &found, .ahead = &ahead, .done = on_looked}};
    feed_publish(f, &a.publish);
    feed_look(f, &a.look);
    harness_wait(&h, is_answered, &a);
    assert_int_equal(a.publish.result, ERR_FEED_UNAVAILABLE);
    assert_int_equal(a.looked, ERR_FEED_UNAVAILABLE);
    assert_null(found);
    struct feed_stats stats;
    feed_stats(f, &stats);
    assert_false(stats.is_available);
    feed_close(f);
    harness_deinit(&h);
}

struct looking {
    struct requests_look look;
    enum err result;
    bool done;
};

static void on_requests_looked(struct requests_look *l, enum err result) {
    struct looking *looking = CONTAINER_OF(l, struct looking, look);
    looking->result = result;
    looking->done = true;
}

static bool has_looked(void *arg) {
    return ((struct looking *)arg)->done;
}

/* A batch of streams is looked up together: those of decided requests must not wait for Kafka. */
static void
without_a_broker_results_are_found_beside_requests_that_only_kafka_may_know(void **state) {
    (void)state;
    struct harness h;
    struct test_record record;
    struct uuid ids[] = {ledger_client_id(1), ledger_client_id(2), ledger_client_id(3)};
    struct request *found[3];
    int64_t ahead[3];
    struct request decided = {.id = ids[1],
                              .event_key = 1,
                              .section_key = 1,
                              .entry_seq = 1,
                              .user = "a",
                              .strategy = STRATEGY_QUEUE,
                              .quantity = 1,
                              .created_ms = 1000,
                              .status = REQUEST_FAIL_SOLD_OUT,
                              .reason = "sold_out",
                              .finished_ms = 2000};
    struct looking l = {
        .look = {
            .ids = ids, .count = 3, .found = found, .ahead = ahead, .done = on_requests_looked}};
    harness_init(&h);
    struct ledger *ledger = open_sqlite(&h, 0);
    struct requests service = {.feed = open_at("127.0.0.1:1", 1), .ledger = ledger};
    struct requests_worker worker = {.service = &service};
    test_request_decide(&record, &decided);
    assert_int_equal(harness_submit(&h, ledger, &record), ERR_OK);
    requests_look(&worker, &l.look);
    harness_wait(&h, has_looked, &l);
    assert_int_equal(l.result, ERR_FEED_UNAVAILABLE);
    assert_null(found[0]);
    assert_non_null(found[1]);
    assert_int_equal(found[1]->status, REQUEST_FAIL_SOLD_OUT);
    assert_null(found[2]);
    mem_free(found[1]);
    feed_close(service.feed);
    ledger_close(ledger);
    harness_deinit(&h);
}

/* ---- what only Kafka does ---- */

static bool is_feed_available(void *feed) {
    struct feed_stats stats;
    feed_stats(feed, &stats);
    return stats.is_available;
}

/* A probe asks twice while the topics are missing. */
#define HIDDEN 6

static void a_topic_that_a_broker_does_not_know_yet_is_no_outage(void **state) {
    (void)state;
    struct harness h;
    char path[320];
    char text[8192];
    begin();
    harness_init(&h);
    snprintf(path, sizeof path, "%s/log", h.folder);
    int before = dup(STDERR_FILENO);
    int file = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    assert_true(before >= 0 && file >= 0);
    atomic_store(&hidden_answers, HIDDEN);
    dup2(file, STDERR_FILENO);
    struct feed *f = open_at(broker(), 1);
    harness_wait(&h, is_feed_available, f);
    dup2(before, STDERR_FILENO);
    close(before);
    ssize_t len = pread(file, text, sizeof text - 1, 0);
    close(file);
    assert_true(len >= 0);
    text[len] = '\0';
    assert_int_equal(atomic_load(&hidden_answers), 0);
    if (strstr(text, "unavailable") != NULL) fail_msg("%s", text);
    feed_close(f);
    harness_deinit(&h);
}

/* One worker, which decides everything at once; and a client of its own. */
struct fixture {
    struct harness h;
    struct feed *feed;
    rd_kafka_t *producer; /* of the feed, at first */
    struct feed_consumer consumer;
    size_t delivered;
    struct uuid last; /* delivered */
    bool keeps;       /* the next one is not decided */
    struct feed_message *kept;
    rd_kafka_t *client;
    struct buf topic;
};

static void on_delivered(struct feed_consumer *c, struct feed_message *m) {
    struct fixture *f = CONTAINER_OF(c, struct fixture, consumer);
    f->delivered++;
    f->last = m->request->id;
    if (f->keeps)
        f->kept = m;
    else
        feed_acknowledge(f->feed, m, FEED_DECIDED, ERR_OK);
    f->keeps = false;
}

static bool is_available(void *arg) {
    struct feed_stats stats;
    feed_stats(((struct fixture *)arg)->feed, &stats);
    return stats.is_available;
}

static void ignore_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *link) {
    (void)rk;
    (void)m;
    (void)link;
}

static int set_up(void **state) {
    static struct fixture fixture;
    struct fixture *f = &fixture;
    struct buf why = {0};
    begin();
    struct kafka_options options = options_at(broker());
    *f = (struct fixture){.consumer.deliver = on_delivered};
    harness_init(&f->h);
    f->feed = open_at(options.brokers, 1);
    f->producer = atomic_load(&last_producer);
    f->client = kafka_producer_new(&options, NULL, ignore_report, 10000, &why);
    assert_non_null(f->client);
    kafka_name(&options, KAFKA_TOPIC_REQUESTS, &f->topic);
    harness_wait(&f->h, is_available, f);
    feed_attach(f->feed, 0, &f->consumer);
    *state = f;
    return 0;
}

static bool is_quiet(void *arg) {
    return !feed_is_busy(((struct fixture *)arg)->feed);
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    feed_drain(f->feed, 0);
    harness_wait(&f->h, is_quiet, f);
    feed_close(f->feed);
    rd_kafka_destroy(f->client);
    buf_deinit(&f->topic);
    harness_deinit(&f->h);
    return 0;
}

static struct answer publish_request(struct fixture *f, uint64_t number) {
    struct request request = {.id = ledger_client_id(number),
                              .event_key = 1,
                              .section_key = 1,
                              .entry_seq = 1,
                              .user = "a",
                              .quantity = 1,
                              .created_ms = clock_wall_ms(),
                              .finished_ms = CLOCK_NONE_MS};
    struct section_names names = {"CONCERT", "1", "A"};
    struct answer a = {.publish = {.request = &request, .names = &names, .done = on_published},
                       .is_looked = true};
    feed_publish(f->feed, &a.publish);
    harness_wait(&f->h, is_answered, &a);
    return a;
}

#define FIRST 999
#define LAST 1000

static bool has_delivered(struct fixture *f, uint64_t number) {
    struct uuid id = ledger_client_id(number);
    feed_tick(f->feed, 0);
    return uuid_eq(&f->last, &id);
}

static bool has_delivered_last(void *arg) {
    return has_delivered(arg, LAST);
}

/* Each one after the other was decided, so the same partition goes on. */
static void assert_goes_on(struct fixture *f) {
    assert_int_equal(publish_request(f, LAST).publish.result, ERR_OK);
    harness_wait(&f->h, has_delivered_last, f);
}

/* As another program would, into the partition of publish_request. */
static void produce_raw(struct fixture *f, const char *value, size_t len, int64_t at_ms) {
    static const char key[] = "CONCERT/1/A";
    rd_kafka_resp_err_t err = rd_kafka_producev(
        f->client, RD_KAFKA_V_TOPIC(buf_cstr(&f->topic)), RD_KAFKA_V_KEY(key, sizeof key - 1),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)value, len), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_TIMESTAMP(at_ms), RD_KAFKA_V_END);
    assert_int_equal(err, RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_int_equal(rd_kafka_flush(f->client, 10000), RD_KAFKA_RESP_ERR_NO_ERROR);
}

static void assert_one_dead_letter(struct fixture *f, const char *reason, size_t bytes) {
    struct kafka_options options = options_at(broker());
    struct buf why = {0};
    struct dead_letters letters = {0};
    harness_wait(&f->h, is_quiet, f); /* it is in its topic */
    struct feed_admin *admin = kafka_admin_new(&options, &why);
    assert_non_null(admin);
    assert_true(feed_admin_list(admin, &letters, &why));
    assert_int_equal(letters.count, 1);
    assert_string_equal(letters.open[0].reason, reason);
    assert_int_equal(letters.open[0].value_bytes, bytes);
    dead_letters_clear(&letters);
    feed_admin_close(admin);
    buf_deinit(&why);
}

static bool is_in_feed(struct fixture *f, uint64_t number) {
    struct uuid id = ledger_client_id(number);
    struct request *found = NULL;
    int64_t ahead = 0;
    struct answer a = {
        .is_published = true,
        .look = {.ids = &id, .count = 1, .found = &found, .ahead = &ahead, .done = on_looked}};
    feed_look(f->feed, &a.look);
    harness_wait(&f->h, is_answered, &a);
    assert_int_equal(a.looked, ERR_OK);
    bool is_found = found != NULL;
    mem_free(found);
    return is_found;
}

#define ID "01890a5d-ac96-774b-bcce-b302099a8057"
static const char foreign[] = "{\"version\":1,\"requestId\":\"" ID "\",\"userId\":\"a\","
                              "\"eventType\":\"CONCERT\",\"eventId\":\"1\",\"section\":\"A\","
                              "\"quantity\":1}";

static void a_message_of_an_hour_ago_is_delivered(void **state) {
    struct fixture *f = *state;
    produce_raw(f, foreign, sizeof foreign - 1, clock_wall_ms() - 3600000);
    assert_goes_on(f);
    assert_int_equal(f->delivered, 2);
}

/* The key that makes a second delivery harmless is gone by then. */
static void a_message_older_than_a_day_becomes_a_dead_letter(void **state) {
    struct fixture *f = *state;
    produce_raw(f, foreign, sizeof foreign - 1, clock_wall_ms() - INT64_C(25) * 3600000);
    assert_goes_on(f);
    assert_int_equal(f->delivered, 1);
    assert_one_dead_letter(f, "older than a day", sizeof foreign - 1);
}

/* The broker would refuse a copy with more headers than the message has. */
static void a_huge_message_is_cut_off_when_it_becomes_a_dead_letter(void **state) {
    struct fixture *f = *state;
    static char huge[900000];
    memset(huge, ' ', sizeof huge);
    produce_raw(f, huge, sizeof huge, clock_wall_ms());
    assert_goes_on(f);
    assert_int_equal(f->delivered, 1);
    assert_one_dead_letter(f, "longer than 65536 bytes", 524288);
}

static bool is_accepted(void *arg) {
    return publish_request(arg, FIRST).publish.result == ERR_OK;
}

static void a_producer_that_has_failed_for_good_is_replaced(void **state) {
    struct fixture *f = *state;
    assert_int_equal(publish_request(f, FIRST).publish.result, ERR_OK);
    rd_kafka_test_fatal_error(f->producer, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, "a test");
    assert_int_equal(publish_request(f, FIRST).publish.result, ERR_FEED_UNAVAILABLE);
    harness_wait(&f->h, is_accepted, f);
    assert_goes_on(f);
}

/* Waits for the result of an admin call, and frees the queue. */
static void assert_admin_ok(rd_kafka_queue_t *queue) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 20000);
    assert_non_null(event);
    assert_int_equal(rd_kafka_event_error(event), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
}

static void delete_topic(struct fixture *f) {
    rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new(buf_cstr(&f->topic));
    rd_kafka_queue_t *queue = rd_kafka_queue_new(f->client);
    rd_kafka_DeleteTopics(f->client, &topic, 1, NULL, queue);
    assert_admin_ok(queue);
    rd_kafka_DeleteTopic_destroy(topic);
}

/* What is accepted just after the topic was deleted is gone with it. */
static bool has_delivered_again(void *arg) {
    struct fixture *f = arg;
    publish_request(f, FIRST);
    harness_run_for(&f->h, 100);
    return has_delivered(f, FIRST);
}

/* An offset of the old topic is higher than those of the new one: nothing of it may be skipped. */
static void a_topic_that_is_deleted_is_created_again(void **state) {
    struct fixture *f = *state;
    for (uint64_t i = 1; i <= 20; i++)
        assert_int_equal(publish_request(f, i).publish.result, ERR_OK);
    assert_goes_on(f);
    assert_false(is_in_feed(f, LAST));
    delete_topic(f);
    harness_wait(&f->h, has_delivered_again, f);
    f->keeps = true;
    assert_goes_on(f);
    assert_true(is_in_feed(f, LAST));
    feed_acknowledge(f->feed, f->kept, FEED_DECIDED, ERR_OK);
    assert_false(is_in_feed(f, LAST));
}

static void create_topic(struct fixture *f, const char *name) {
    char error[200];
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, 1, 1, error, sizeof error);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(f->client);
    rd_kafka_CreateTopics(f->client, &topic, 1, NULL, queue);
    assert_admin_ok(queue);
    rd_kafka_NewTopic_destroy(topic);
}

static bool is_other_available(void *feed) {
    struct feed_stats stats;
    feed_stats(feed, &stats);
    return stats.is_available;
}

/* The broker refuses to create a topic whose name is that of another one but for '.' and '_'. */
static void a_node_whose_topics_cannot_be_created_waits_until_they_can(void **state) {
    struct fixture *f = *state;
    struct buf obstacle = {0};
    const size_t mine = strlen(prefix);
    struct request request = {.user = "a", .quantity = 1, .finished_ms = CLOCK_NONE_MS};
    struct section_names names = {"CONCERT", "1", "A"};
    struct answer a = {.publish = {.request = &request, .names = &names, .done = on_published}};
    buf_addf(&obstacle, "%sother_%s", prefix, KAFKA_TOPIC_REQUESTS);
    create_topic(f, buf_cstr(&obstacle));
    snprintf(prefix + mine, sizeof prefix - mine, "other.");
    struct feed *other = open_at(broker(), 1);
    harness_run_for(&f->h, 2500); /* it asks every second */
    assert_false(is_other_available(other));
    feed_publish(other, &a.publish);
    assert_true(a.is_published);
    assert_int_equal(a.publish.result, ERR_FEED_UNAVAILABLE);
    struct buf own = f->topic;
    f->topic = obstacle;
    delete_topic(f);
    f->topic = own;
    harness_wait(&f->h, is_other_available, other);
    feed_close(other);
    prefix[mine] = '\0';
    buf_deinit(&obstacle);
}

static void add_partitions(struct fixture *f, size_t count) {
    char error[200];
    rd_kafka_NewPartitions_t *more =
        rd_kafka_NewPartitions_new(buf_cstr(&f->topic), count, error, sizeof error);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(f->client);
    rd_kafka_CreatePartitions(f->client, &more, 1, NULL, queue);
    assert_admin_ok(queue);
    rd_kafka_NewPartitions_destroy(more);
}

static bool has_delivered_foreign(void *arg) {
    struct fixture *f = arg;
    struct uuid id;
    feed_tick(f->feed, 0);
    return uuid_parse(STR(ID), &id) && uuid_eq(&f->last, &id);
}

/* The client must have heard of the partition. */
static bool is_produced_to_new_partition(void *arg) {
    struct fixture *f = arg;
    rd_kafka_poll(f->client, 100);
    rd_kafka_resp_err_t err = rd_kafka_producev(
        f->client, RD_KAFKA_V_TOPIC(buf_cstr(&f->topic)), RD_KAFKA_V_PARTITION(PARTITIONS + 1),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)foreign, sizeof foreign - 1),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    if (err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION) return false;
    assert_int_equal(err, RD_KAFKA_RESP_ERR_NO_ERROR);
    return true;
}

static void requests_in_new_partitions_are_delivered(void **state) {
    struct fixture *f = *state;
    add_partitions(f, PARTITIONS + 2);
    harness_wait(&f->h, is_produced_to_new_partition, f);
    harness_wait(&f->h, has_delivered_foreign, f);
}

int main(void) {
    static const struct feed_adapter on_kafka = {.open_ledger = open_sqlite,
                                                 .open = open_feed,
                                                 .begin = begin,
                                                 .name = name_section,
                                                 .sets_aside = true};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_broker_nothing_is_accepted_and_nothing_said_to_be_missing),
        cmocka_unit_test(
            without_a_broker_results_are_found_beside_requests_that_only_kafka_may_know),
    };
    const struct CMUnitTest of_kafka[] = {
        cmocka_unit_test(a_topic_that_a_broker_does_not_know_yet_is_no_outage),
        cmocka_unit_test_setup_teardown(a_message_of_an_hour_ago_is_delivered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_message_older_than_a_day_becomes_a_dead_letter, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_huge_message_is_cut_off_when_it_becomes_a_dead_letter,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_producer_that_has_failed_for_good_is_replaced, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_topic_that_is_deleted_is_created_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_node_whose_topics_cannot_be_created_waits_until_they_can,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_in_new_partitions_are_delivered, set_up,
                                        tear_down),
    };
    return feed_suite_run(&on_kafka) +
           cmocka_run_group_tests_name("feed without a broker", tests, NULL, NULL) +
           cmocka_run_group_tests_name("what only Kafka does", of_kafka, NULL, NULL);
}
