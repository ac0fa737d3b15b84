#include "run/mailbox.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* One loop that the test itself turns. */
struct receiver {
    uv_loop_t loop;
    struct mailbox mailbox;
};

struct note {
    struct task task; /* first, so that a task is its note */
    struct receiver *receiver;
    int poster;
    int number;
};

/* The tasks that have run, in order. */
static struct note *ran[200000];
static size_t ran_count;

static void remember(struct task *t) {
    ran[ran_count++] = (struct note *)t;
}

static void lock_client_init(struct receiver *d) {
    assert_int_equal(uv_loop_init(&d->loop), 0);
    mailbox_init(&d->mailbox, &d->loop);
    ran_count = 0;
}

static void desk_deinit(struct receiver *d) {
    mailbox_close(&d->mailbox);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&d->loop), 0);
    mailbox_deinit(&d->mailbox);
}

static struct note *notes_new(size_t count, int poster) {
    struct note *notes = calloc(count, sizeof *notes);
    for (size_t i = 0; i < count; i++)
        notes[i] = (struct note){.task.run = remember, .poster = poster, .number = (int)i};
    return notes;
}

static void tasks_run_on_the_loop_in_the_order_of_posting(void **state) {
    (void)state;
    struct receiver d;
    lock_client_init(&d);
    struct note *notes = notes_new(100, 0);
    struct task_list many = {0};
    for (int i = 0; i < 20; i++) mailbox_post(&d.mailbox, &notes[i].task);
    for (int i = 20; i < 60; i++) task_list_add(&many, &notes[i].task);
    mailbox_post_all(&d.mailbox, &many);
    for (int i = 60; i < 100; i++) mailbox_post(&d.mailbox, &notes[i].task);
    assert_int_equal(d.mailbox.tasks.count, 100);
    assert_int_equal(ran_count, 0);
    uv_run(&d.loop, UV_RUN_ONCE);
    assert_int_equal(ran_count, 100);
    for (int i = 0; i < 100; i++) assert_int_equal(ran[i]->number, i);
    free(notes);
    desk_deinit(&d);
}

static void a_posted_list_is_moved_and_left_empty(void **state) {
    (void)state;
    struct receiver d;
    lock_client_init(&d);
    struct note *notes = notes_new(3, 0);
    struct task_list list = {0};
    mailbox_post_all(&d.mailbox, &list);
    assert_int_equal(d.mailbox.tasks.count, 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) task_list_add(&list, &notes[i].task);
        mailbox_post_all(&d.mailbox, &list);
        assert_null(list.first);
        assert_null(list.last);
        assert_int_equal(list.count, 0);
        uv_run(&d.loop, UV_RUN_ONCE);
    }
    assert_int_equal(ran_count, 6);
    free(notes);
    desk_deinit(&d);
}

static bool is_awake(struct receiver *d) {
    struct pollfd p = {.fd = uv_backend_fd(&d->loop), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void one_wake_serves_all_that_was_posted_before_it(void **state) {
    (void)state;
    struct receiver d;
    lock_client_init(&d);
    struct note *notes = notes_new(1000, 0);
    uv_run(&d.loop, UV_RUN_NOWAIT);
    assert_false(is_awake(&d));
    for (int i = 0; i < 1000; i++) mailbox_post(&d.mailbox, &notes[i].task);
    assert_true(is_awake(&d));
    uv_run(&d.loop, UV_RUN_NOWAIT);
    assert_int_equal(ran_count, 1000);
    assert_false(is_awake(&d));
    /* The next post wakes it again. */
    mailbox_post(&d.mailbox, &notes[0].task);
    assert_true(is_awake(&d));
    uv_run(&d.loop, UV_RUN_NOWAIT);
    assert_int_equal(ran_count, 1001);
    free(notes);
    desk_deinit(&d);
}

static void run_and_post_again(struct task *t) {
    struct note *n = (struct note *)t;
    remember(t);
    if (++n->number < 10) mailbox_post(&n->receiver->mailbox, t);
}

static void a_task_may_post_itself_again_while_it_runs(void **state) {
    (void)state;
    struct receiver d;
    lock_client_init(&d);
    struct note n = {.task.run = run_and_post_again, .receiver = &d};
    mailbox_post(&d.mailbox, &n.task);
    for (int turns = 0; ran_count < 10 && turns < 10; turns++) uv_run(&d.loop, UV_RUN_ONCE);
    assert_int_equal(ran_count, 10);
    desk_deinit(&d);
}

static void run_and_free(struct task *t) {
    ran_count++;
    free(t);
}

static void a_task_may_free_itself(void **state) {
    (void)state;
    struct receiver d;
    lock_client_init(&d);
    for (int i = 0; i < 10; i++) {
        struct note *n = notes_new(1, 0);
        n->task.run = run_and_free;
        mailbox_post(&d.mailbox, &n->task);
    }
    uv_run(&d.loop, UV_RUN_ONCE);
    assert_int_equal(ran_count, 10);
    desk_deinit(&d);
}

enum { POSTERS = 6, NOTES = 20000 };

struct poster {
    pthread_t thread;
    struct mailbox *to;
    struct note *notes;
};

/* Singly and in lists of several lengths by turns. */
static void *post_all_notes(void *arg) {
    struct poster *p = arg;
    for (int i = 0; i < NOTES;) {
        int together = i % 7;
        if (together == 0) {
            mailbox_post(p->to, &p->notes[i++].task);
            continue;
        }
        struct task_list list = {0};
        for (; together > 0 && i < NOTES; together--) task_list_add(&list, &p->notes[i++].task);
        mailbox_post_all(p->to, &list);
    }
    return NULL;
}

static void give_up(uv_timer_t *deadline) {
    *(bool *)deadline->data = true;
}

static void nothing_of_several_posters_is_lost_or_overtaken(void **state) {
    (void)state;
    struct receiver d;
    lock_client_init(&d);
    bool late = false;
    uv_timer_t deadline;
    uv_timer_init(&d.loop, &deadline);
    deadline.data = &late;
    uv_timer_start(&deadline, give_up, 60000, 0);
    struct poster posters[POSTERS];
    for (int i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.to = &d.mailbox, .notes = notes_new(NOTES, i)};
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_all_notes, &posters[i]), 0);
    }
    while (ran_count < (size_t)POSTERS * NOTES && !late) uv_run(&d.loop, UV_RUN_ONCE);
    for (int i = 0; i < POSTERS; i++) pthread_join(posters[i].thread, NULL);
    uv_run(&d.loop, UV_RUN_NOWAIT);
    assert_false(late);
    assert_int_equal(ran_count, POSTERS * NOTES);
    int next[POSTERS] = {0};
    for (size_t i = 0; i < ran_count; i++) assert_int_equal(ran[i]->number, next[ran[i]->poster]++);
    uv_close((uv_handle_t *)&deadline, NULL);
    for (int i = 0; i < POSTERS; i++) free(posters[i].notes);
    desk_deinit(&d);
}

static void *read_mine(void *unused) {
    (void)unused;
    return mailbox_mine();
}

static void each_thread_has_its_own_mailbox_or_none(void **state) {
    (void)state;
    struct mailbox m;
    assert_null(mailbox_mine());
    mailbox_set_mine(&m);
    assert_ptr_equal(mailbox_mine(), &m);
    pthread_t other;
    void *theirs = &m;
    assert_int_equal(pthread_create(&other, NULL, read_mine, NULL), 0);
    pthread_join(other, &theirs);
    assert_null(theirs);
    mailbox_set_mine(NULL);
    assert_null(mailbox_mine());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_run_on_the_loop_in_the_order_of_posting),
        cmocka_unit_test(a_posted_list_is_moved_and_left_empty),
        cmocka_unit_test(one_wake_serves_all_that_was_posted_before_it),
        cmocka_unit_test(a_task_may_post_itself_again_while_it_runs),
        cmocka_unit_test(a_task_may_free_itself),
        cmocka_unit_test(nothing_of_several_posters_is_lost_or_overtaken),
        cmocka_unit_test(each_thread_has_its_own_mailbox_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
