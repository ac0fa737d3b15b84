/* Several nodes change and read events at once: no change is lost, and no half change is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ledger_harness.h"
#include "postgres_scratch.h"

#define NODES 4
#define EDITS 15

struct fixture {
    struct scratch s;
};

static int set_up(void **state) {
    struct fixture *f = mem_new(sizeof *f);
    scratch_open(&f->s);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    scratch_shut(&f->s);
    mem_free(f);
    return 0;
}

/* ---- nodes: each a thread with a connection, which puts and says how that went ---- */

struct node {
    pthread_t thread;
    const struct scratch *s;
    const struct event *wanted; /* or NULL: edits */
    int puts;
    int failed;
    int created;
    int64_t version; /* of the last */
    enum err result; /* of the last */
};

static enum err raise_price(struct ledger_event_put *put, struct event **e) {
    (void)put;
    (*e)->sections[0].price++;
    return ERR_OK;
}

static bool put_once(struct pg *db, struct node *n) {
    struct test_record r;
    test_put(&r, n->wanted, 1000);
    if (n->wanted == NULL) {
        r.put.edit = raise_price;
        r.put.type = STR("CONCERT");
        r.put.id = STR("1");
    }
    bool ok = pg_exec(db, "BEGIN") && pg_event_put_apply(db, &r.put) && pg_exec(db, "COMMIT");
    n->result = r.record.result;
    if (ok && r.put.stored != NULL) n->version = r.put.stored->version;
    if (ok && r.put.created) n->created++;
    test_record_deinit(&r);
    return ok;
}

static void *run_node(void *arg) {
    struct node *n = arg;
    struct pg db;
    struct buf why = {0};
    if (!pg_open(&db, &(struct pg_settings){.url = n->s->url, .wait_ms = 30000}, &why)) {
        n->failed = n->puts;
        buf_deinit(&why);
        return NULL;
    }
    for (int i = 0; i < n->puts; i++)
        if (!put_once(&db, n)) n->failed++;
    pg_close(&db);
    return NULL;
}

static void node_start(struct node *n, const struct fixture *f, const struct event *wanted,
                       int puts) {
    *n = (struct node){.s = &f->s, .wanted = wanted, .puts = puts};
    assert_int_equal(pthread_create(&n->thread, NULL, run_node, n), 0);
}

static void node_join(struct node *n) {
    pthread_join(n->thread, NULL);
    assert_int_equal(n->failed, 0);
}

/* Waits until a session waits for a lock. */
static void wait_for_a_waiter(struct fixture *f) {
    int64_t deadline_ns = clock_steady_ns() + (int64_t)HARNESS_DEADLINE_MS * 1000000;
    while (scratch_number(&f->s, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        if (clock_steady_ns() > deadline_ns) fail_msg("nobody waits");
        usleep(10000);
    }
}

/* ---- events ---- */

static void edits_of_several_nodes_all_land(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 2);
    struct event *first = scratch_store(&f->s, wanted);
    struct node nodes[NODES];
    for (int i = 0; i < NODES; i++) node_start(&nodes[i], f, NULL, EDITS);
    for (int i = 0; i < NODES; i++) node_join(&nodes[i]);
    assert_int_equal(scratch_number(&f->s, "SELECT price FROM sections WHERE id = %lld",
                                    (long long)first->sections[0].key),
                     first->sections[0].price + NODES * EDITS);
    /* Each had its own audit row, and the last is the version. */
    assert_int_equal(scratch_number(&f->s, "SELECT count(*) FROM audit"), 1 + NODES * EDITS);
    assert_int_equal(scratch_number(&f->s, "SELECT version - (SELECT max(id) FROM audit)"
                                           " FROM events"),
                     0);
    mem_free(first);
    mem_free(wanted);
}

static void an_event_that_several_nodes_create_at_once_is_one(void **state) {
    struct fixture *f = *state;
    for (int round = 0; round < 5; round++) {
        char id[16];
        snprintf(id, sizeof id, "new%d", round);
        struct event *wanted = test_event(id, 2);
        wanted->sections[1].mode = SECTION_MODE_SEAT;
        struct node nodes[NODES];
        int created = 0;
        for (int i = 0; i < NODES; i++) node_start(&nodes[i], f, wanted, 1);
        for (int i = 0; i < NODES; i++) {
            node_join(&nodes[i]);
            assert_int_equal(nodes[i].result, ERR_OK);
            created += nodes[i].created;
        }
        assert_int_equal(created, 1);
        assert_int_equal(
            scratch_number(&f->s, "SELECT count(*) FROM events WHERE external_id = '%s'", id), 1);
        assert_int_equal(scratch_number(&f->s,
                                        "SELECT count(*) FROM sections c JOIN events e"
                                        " ON e.id = c.event_id WHERE e.external_id = '%s'",
                                        id),
                         2);
        mem_free(wanted);
    }
}

/* Else a node could know a version, and never learn of a lower one that came after it. */
static void versions_become_visible_in_their_order(void **state) {
    struct fixture *f = *state;
    struct event *one = test_event("1", 1);
    struct event *two = test_event("2", 1);
    struct test_record first;
    struct test_record news;
    struct node second;
    test_put(&first, one, 1000);
    assert_true(pg_exec(&f->s.db, "BEGIN"));
    assert_true(pg_event_put_apply(&f->s.db, &first.put));
    node_start(&second, f, two, 1);
    wait_for_a_waiter(f);
    assert_int_equal(scratch_number(&f->s, "SELECT count(*) FROM audit"), 0);
    assert_true(pg_exec(&f->s.db, "COMMIT"));
    node_join(&second);
    assert_true(second.version > first.put.stored->version);
    test_events_read(&news, 0);
    assert_true(pg_events_read(&f->s.db, &news.events_read));
    assert_int_equal(news.events_read.count, 2);
    test_record_deinit(&news);
    test_record_deinit(&first);
    mem_free(two);
    mem_free(one);
}

static void a_seat_section_has_all_its_rows(void **state) {
    struct fixture *f = *state;
    static const char rows[] = "SELECT count(*) FROM seats WHERE state = 'AVAILABLE'"
                               " AND version = 0 AND seat_no BETWEEN 1 AND %d";
    struct event *wanted = test_event("1", 2);
    wanted->sections[0].mode = SECTION_MODE_SEAT;
    wanted->sections[0].capacity = 20001; /* one more than two chunks */
    struct event *stored = scratch_store(&f->s, wanted);
    assert_int_equal(scratch_number(&f->s, rows, 20001), 20001);
    assert_int_equal(scratch_number(&f->s, "SELECT count(*) FROM seats WHERE section_id = %lld",
                                    (long long)stored->sections[0].key),
                     20001);
    mem_free(stored);
    /* It shrinks, and then grows beyond its first size. */
    wanted->sections[0].capacity = 10;
    mem_free(scratch_store(&f->s, wanted));
    assert_int_equal(scratch_number(&f->s, rows, 30000), 20001);
    wanted->sections[0].capacity = 20010;
    mem_free(scratch_store(&f->s, wanted));
    assert_int_equal(scratch_number(&f->s, rows, 30000), 20010);
    /* The other one has none until it is of that mode. */
    wanted->sections[1].mode = SECTION_MODE_SEAT;
    mem_free(scratch_store(&f->s, wanted));
    assert_int_equal(scratch_number(&f->s, rows, 30000), 20010 + 100);
    mem_free(wanted);
}

/* The time that a record has is for a server that does not answer, not for one that works. */
static void a_put_that_makes_many_seats_is_not_given_up(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    wanted->sections[0].mode = SECTION_MODE_SEAT;
    wanted->sections[0].capacity = 80000; /* eight chunks */
    scratch_sql(&f->s, "CREATE FUNCTION doze() RETURNS TRIGGER LANGUAGE plpgsql AS"
                       " 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END';"
                       "CREATE TRIGGER slow BEFORE INSERT ON seats EXECUTE FUNCTION doze()");
    f->s.db.until_ns = clock_steady_ns() + INT64_C(1500000000);
    mem_free(scratch_store(&f->s, wanted));
    f->s.db.until_ns = 0;
    assert_int_equal(scratch_number(&f->s, "SELECT count(*) FROM seats"), 80000);
    mem_free(wanted);
}

/* A hold is under way when its section is to shrink below it. */
static void removing_seats_waits_for_holds_and_is_then_refused(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct node shrinks;
    assert_true(pg_exec(&f->s.db, "BEGIN; INSERT INTO seats VALUES (1, 50, 'HELD',"
                                  " '01010101010101010101010101010101', 1, 0);"
                                  "UPDATE sections SET held = 1"));
    wanted->sections[0].capacity = 49;
    node_start(&shrinks, f, wanted, 1);
    wait_for_a_waiter(f);
    assert_true(pg_exec(&f->s.db, "COMMIT"));
    node_join(&shrinks);
    assert_int_equal(shrinks.result, ERR_SECTION_IN_USE);
    assert_int_equal(scratch_number(&f->s, "SELECT capacity FROM sections"), 100);
    assert_int_equal(scratch_number(&f->s, "SELECT count(*) FROM audit"), 1);
    mem_free(stored);
    mem_free(wanted);
}

/* A change that removes no seats locks no section while it creates seats: only at the end. */
static void adding_many_seats_delays_holds_only_at_the_end(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    mem_free(scratch_store(&f->s, wanted));
    struct event *two = test_event("1", 2);
    struct node adds;
    two->sections[1].mode = SECTION_MODE_SEAT;
    assert_true(pg_exec(&f->s.db, "BEGIN; UPDATE sections SET held = 1 WHERE id = 1"));
    node_start(&adds, f, two, 1);
    wait_for_a_waiter(f);
    /* It has made the new section already, and its rows, and waits for the old one. */
    assert_int_equal(scratch_number(&f->s, "SELECT last_value FROM sections_id_seq"), 2);
    assert_true(pg_exec(&f->s.db, "COMMIT"));
    node_join(&adds);
    assert_int_equal(adds.result, ERR_OK);
    assert_int_equal(scratch_number(&f->s, "SELECT held FROM sections WHERE id = 1"), 1);
    assert_int_equal(scratch_number(&f->s, "SELECT count(*) FROM seats"), 100);
    mem_free(two);
    mem_free(wanted);
}

/* ---- load ---- */

struct told {
    struct fixture *f;
    uint64_t last_seq;
    size_t entries;
    size_t reservations;
    bool in_order;
};

/* At the same time a user enters. */
static void on_event(void *to, struct event *e) {
    struct told *t = to;
    scratch_sql(&t->f->s, "INSERT INTO queue_entries"
                          " VALUES (1, 1000000, 'late', 8, 'WAITING', 1, NULL, NULL, NULL)");
    mem_free(e);
}

static void on_entry(void *to, const struct ledger_entry *e) {
    struct told *t = to;
    if (e->seq <= t->last_seq || e->event_key != 1) t->in_order = false;
    t->last_seq = e->seq;
    t->entries++;
}

static void on_reservation(void *to, const struct reservation *r) {
    struct told *t = to;
    (void)r;
    t->reservations++;
}

static void everything_live_is_reported_as_of_one_moment(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct told t = {.f = f, .in_order = true};
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "HELD");
    tables_reservation(scratch_tables(&f->s), 2, stored, &stored->sections[0], 8, "CANCELLED");
    /* More than come at a time. */
    scratch_sql(&f->s, "INSERT INTO queue_entries SELECT 1, i, 'u' || i, 8, 'WAITING', 1, NULL,"
                       " NULL, NULL FROM generate_series(1, 12345) i");
    assert_true(pg_load(&f->s.db, &(struct ledger_reader){.on_event = on_event,
                                                          .on_entry = on_entry,
                                                          .on_reservation = on_reservation,
                                                          .to = &t}));
    assert_true(t.in_order);
    assert_int_equal(t.entries, 12345);
    assert_int_equal(t.reservations, 1);
    mem_free(stored);
    mem_free(wanted);
}

/* ---- facts ---- */

/* A session beside the one under test. */
static void open_beside(struct fixture *f, struct pg *out) {
    struct buf why = {0};
    assert_true(pg_open(out, &(struct pg_settings){.url = f->s.url, .wait_ms = 30000}, &why));
}

/* The order of commits differs from that of the numbers: a fact with a lower number than those that
 * were relayed already is returned all the same. */
static void a_fact_that_commits_late_is_reported(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct test_record read;
    struct test_record relayed;
    struct pg late;
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "CANCELLED");
    open_beside(f, &late);
    assert_true(pg_exec(&late, "BEGIN; DELETE FROM facts WHERE kind = 'HELD';"
                               "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
                               " SELECT 'HELD', 1, id, 1, 1 FROM reservations"));
    tables_reservation(scratch_tables(&f->s), 2, stored, &stored->sections[0], 8, "HELD");
    test_facts_read(&read, 5000, 0);
    assert_true(pg_facts_read(&f->s.db, &read.facts_read));
    assert_int_equal(read.facts_read.count, 3);
    int64_t ids[] = {read.facts_read.facts[1].id, read.facts_read.facts[2].id};
    test_facts_relayed(&relayed, ids, 2, 5000);
    assert_true(pg_facts_relayed_apply(&f->s.db, &relayed.facts_relayed));
    assert_true(pg_exec(&late, "COMMIT"));
    assert_true(pg_facts_read(&f->s.db, &read.facts_read));
    assert_int_equal(read.facts_read.count, 1);
    assert_true(read.facts_read.facts[0].id < ids[1] && read.facts_read.facts[0].id > ids[0]);
    pg_close(&late);
    mem_free(stored);
    mem_free(wanted);
}

static size_t read_sales(struct fixture *f, struct test_record *read, struct sale *sales) {
    test_sales_read(read, read->sales_read.mark, sales, 8);
    assert_true(pg_sales_read(&f->s.db, &read->sales_read));
    return read->sales_read.count;
}

/* A counter must not skip a sale that is committed later: so all later ones wait. */
static void a_sale_that_commits_late_keeps_back_those_behind_it(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct test_record read = {0};
    struct sale sales[8];
    struct pg late;
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "HELD");
    assert_int_equal(read_sales(f, &read, sales), 1);
    open_beside(f, &late);
    assert_true(pg_exec(&late, "BEGIN; INSERT INTO facts(kind, event_id, reservation_id,"
                               " seat_count, at) SELECT 'CANCELLED', 1, id, 1, 9"
                               " FROM reservations"));
    tables_reservation(scratch_tables(&f->s), 2, stored, &stored->sections[0], 8, "HELD");
    assert_int_equal(read_sales(f, &read, sales), 0);
    assert_true(pg_exec(&late, "COMMIT"));
    assert_int_equal(read_sales(f, &read, sales), 2);
    assert_int_equal(sales[0].kind, SALE_GIVEN_BACK);
    assert_int_equal(sales[1].kind, SALE_TAKEN);
    assert_int_equal(read_sales(f, &read, sales), 0);
    pg_close(&late);
    mem_free(stored);
    mem_free(wanted);
}

/* The kinds of the facts after the mark, in order, as their first letters; moves the mark. */
static void read_kinds(struct fixture *f, struct sale_mark *mark, char kinds[9]) {
    struct test_record r;
    struct fact *facts[8];
    test_facts_page(&r, *mark, facts, 8);
    assert_true(pg_facts_page(&f->s.db, &r.facts_page));
    for (size_t i = 0; i < r.facts_page.count; i++) {
        kinds[i] = fact_kind_words[facts[i]->kind].at[0];
        mem_free(facts[i]);
    }
    kinds[r.facts_page.count] = '\0';
    *mark = r.facts_page.mark;
}

static void a_fact_that_commits_late_keeps_back_those_behind_it(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct sale_mark mark = {0};
    char kinds[9];
    struct pg late;
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "HELD");
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "H");
    open_beside(f, &late);
    assert_true(pg_exec(&late, "BEGIN; INSERT INTO facts(kind, event_id, reservation_id,"
                               " seat_count, at) SELECT 'CONFIRMED', 1, id, 1, 9"
                               " FROM reservations"));
    tables_reservation(scratch_tables(&f->s), 2, stored, &stored->sections[0], 8, "HELD");
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "");
    assert_true(pg_exec(&late, "COMMIT"));
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "CH");
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "");
    pg_close(&late);
    mem_free(stored);
    mem_free(wanted);
}

/* A transaction has its number before the reservation is made, and cancels it afterwards; another
 * one is open all the time. */
static void the_end_of_a_reservation_comes_after_its_beginning(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct sale_mark mark = {0};
    char kinds[9];
    struct pg late;
    struct pg open;
    open_beside(f, &late);
    open_beside(f, &open);
    assert_true(pg_exec(&late, "BEGIN; SELECT pg_current_xact_id()"));
    assert_true(pg_exec(&open, "BEGIN; SELECT pg_current_xact_id()"));
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "HELD");
    assert_true(pg_exec(&late, "INSERT INTO facts(kind, event_id, reservation_id, seat_count, at)"
                               " SELECT 'CANCELLED', 1, id, 1, 9 FROM reservations"));
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "");
    assert_true(pg_exec(&late, "COMMIT"));
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "");
    assert_true(pg_exec(&open, "COMMIT"));
    read_kinds(f, &mark, kinds);
    assert_string_equal(kinds, "HC");
    pg_close(&late);
    pg_close(&open);
    mem_free(stored);
    mem_free(wanted);
}

static void add_sale(void *to, const struct sale *s) {
    *(int64_t *)to += s->kind == SALE_TAKEN ? s->seats : -s->seats;
}

static void add_reservation(void *to, const struct reservation *r) {
    *(int64_t *)to += (int64_t)r->seat_count;
}

static struct sale_mark loaded_mark;

static void keep_mark(void *to, const struct sale_mark *mark) {
    (void)to;
    loaded_mark = *mark;
}

/* The loaded sales and those after the mark are all sales, each once, whatever was under way. */
static void what_is_loaded_while_one_is_under_way_comes_once(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct test_record read = {0};
    struct sale sales[8];
    struct pg late;
    int64_t seats = 0;
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "HELD");
    open_beside(f, &late);
    assert_true(pg_exec(&late, "BEGIN; SELECT pg_current_xact_id()"));
    tables_reservation(scratch_tables(&f->s), 2, stored, &stored->sections[0], 8, "CANCELLED");
    tables_reservation(scratch_tables(&f->s), 3, stored, &stored->sections[0], 9, "HELD");
    assert_true(pg_load(&f->s.db, &(struct ledger_reader){.on_reservation = add_reservation,
                                                          .on_sale = add_sale,
                                                          .on_mark = keep_mark,
                                                          .to = &seats}));
    assert_int_equal(seats, 1);
    assert_true(pg_exec(&late, "COMMIT"));
    read.sales_read.mark = loaded_mark;
    size_t n = read_sales(f, &read, sales);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < n; i++) add_sale(&seats, &sales[i]);
    assert_int_equal(seats, 2);
    pg_close(&late);
    mem_free(stored);
    mem_free(wanted);
}

/* Two nodes relay the same facts: neither waits for the other. */
static void facts_that_another_node_is_marking_are_not_waited_for(void **state) {
    struct fixture *f = *state;
    struct event *wanted = test_event("1", 1);
    struct event *stored = scratch_store(&f->s, wanted);
    struct test_record relayed;
    struct pg other;
    struct buf why = {0};
    const int64_t ids[] = {1, 2};
    tables_reservation(scratch_tables(&f->s), 1, stored, &stored->sections[0], 7, "CANCELLED");
    assert_true(pg_open(
        &other, &(struct pg_settings){.url = f->s.url, .wait_ms = 30000, .lock_timeout_ms = 100},
        &why));
    assert_true(pg_exec(&f->s.db, "BEGIN"));
    test_facts_relayed(&relayed, ids, 1, 5000);
    assert_true(pg_facts_relayed_apply(&f->s.db, &relayed.facts_relayed));
    test_facts_relayed(&relayed, ids, 2, 6000);
    assert_true(pg_facts_relayed_apply(&other, &relayed.facts_relayed));
    assert_true(pg_exec(&f->s.db, "COMMIT"));
    assert_int_equal(scratch_number(&f->s, "SELECT sum(relayed_at) FROM facts"), 11000);
    pg_close(&other);
    mem_free(stored);
    mem_free(wanted);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(edits_of_several_nodes_all_land),
        TEST(an_event_that_several_nodes_create_at_once_is_one),
        TEST(versions_become_visible_in_their_order),
        TEST(a_seat_section_has_all_its_rows),
        TEST(a_put_that_makes_many_seats_is_not_given_up),
        TEST(removing_seats_waits_for_holds_and_is_then_refused),
        TEST(adding_many_seats_delays_holds_only_at_the_end),
        TEST(everything_live_is_reported_as_of_one_moment),
        TEST(a_fact_that_commits_late_is_reported),
        TEST(a_sale_that_commits_late_keeps_back_those_behind_it),
        TEST(a_fact_that_commits_late_keeps_back_those_behind_it),
        TEST(the_end_of_a_reservation_comes_after_its_beginning),
        TEST(what_is_loaded_while_one_is_under_way_comes_once),
        TEST(facts_that_another_node_is_marking_are_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
