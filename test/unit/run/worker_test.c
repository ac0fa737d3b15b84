#include "run/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

struct job {
    struct task task; /* first, so that a task is its job */
    struct worker *worker;
    struct job *next; /* in a ring */
    bool ends_ring;
    pthread_t ran_on; /* the rest is written on the worker, read after worker_join */
    struct mailbox *mine;
    int runs;
};

static void note_thread(struct job *j) {
    j->ran_on = pthread_self();
    j->mine = mailbox_mine();
    j->runs++;
}

static void only_note(struct task *t) {
    note_thread((struct job *)t);
}

static void note_and_stop(struct task *t) {
    struct job *j = (struct job *)t;
    note_thread(j);
    worker_stop(j->worker);
}

static void a_task_runs_on_the_workers_own_thread_with_its_mailbox(void **state) {
    (void)state;
    struct worker w;
    assert_int_equal(worker_init(&w), 0);
    assert_int_equal(worker_start(&w), 0);
    struct job first = {.task.run = only_note, .worker = &w};
    struct job last = {.task.run = note_and_stop, .worker = &w};
    mailbox_post(&w.mailbox, &first.task);
    mailbox_post(&w.mailbox, &last.task);
    worker_join(&w);
    assert_int_equal(first.runs, 1);
    assert_int_equal(last.runs, 1);
    assert_true(pthread_equal(first.ran_on, last.ran_on));
    assert_false(pthread_equal(first.ran_on, pthread_self()));
    assert_ptr_equal(first.mine, &w.mailbox);
    assert_null(mailbox_mine());
}

static void what_is_posted_before_the_start_is_run(void **state) {
    (void)state;
    struct worker w;
    assert_int_equal(worker_init(&w), 0);
    struct job stop = {.task.run = note_and_stop, .worker = &w};
    mailbox_post(&w.mailbox, &stop.task);
    assert_int_equal(worker_start(&w), 0);
    worker_join(&w);
    assert_int_equal(stop.runs, 1);
}

static int turns;

static void count_turns(uv_timer_t *timer) {
    if (++turns == 3) uv_close((uv_handle_t *)timer, NULL);
}

static void a_stopped_worker_ends_only_when_its_last_handle_is_closed(void **state) {
    (void)state;
    struct worker w;
    turns = 0;
    assert_int_equal(worker_init(&w), 0);
    uv_timer_t timer;
    uv_timer_init(&w.loop, &timer);
    uv_timer_start(&timer, count_turns, 1, 1);
    struct job stop = {.task.run = note_and_stop, .worker = &w};
    mailbox_post(&w.mailbox, &stop.task);
    assert_int_equal(worker_start(&w), 0);
    worker_join(&w);
    assert_int_equal(turns, 3);
}

static void a_worker_can_be_started_and_stopped_many_times(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct worker w;
        assert_int_equal(worker_init(&w), 0);
        assert_int_equal(worker_start(&w), 0);
        struct job stop = {.task.run = note_and_stop, .worker = &w};
        mailbox_post(&w.mailbox, &stop.task);
        worker_join(&w);
        assert_int_equal(stop.runs, 1);
    }
}

enum { RING = 4, ROUNDS = 1000 };

/* In the last round each worker stops as the task leaves it, and the last one keeps it. */
static void pass_on(struct task *t) {
    struct job *j = (struct job *)t;
    note_thread(j);
    bool last_round = j->runs == ROUNDS;
    if (!last_round || !j->ends_ring) mailbox_post(&j->next->worker->mailbox, &j->next->task);
    if (last_round) worker_stop(j->worker);
}

static void workers_pass_a_task_around_a_ring(void **state) {
    (void)state;
    struct worker workers[RING];
    struct job jobs[RING];
    for (int i = 0; i < RING; i++) {
        assert_int_equal(worker_init(&workers[i]), 0);
        jobs[i] = (struct job){.task.run = pass_on,
                               .worker = &workers[i],
                               .next = &jobs[(i + 1) % RING],
                               .ends_ring = i == RING - 1};
    }
    for (int i = 0; i < RING; i++) assert_int_equal(worker_start(&workers[i]), 0);
    mailbox_post(&workers[0].mailbox, &jobs[0].task);
    for (int i = 0; i < RING; i++) worker_join(&workers[i]);
    for (int i = 0; i < RING; i++) {
        assert_int_equal(jobs[i].runs, ROUNDS);
        assert_ptr_equal(jobs[i].mine, &workers[i].mailbox);
    }
}

static void a_worker_without_file_descriptors_logs_it_and_the_process_continues(void **state) {
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t room = 0; room < 3; room++) {
        int lowest_free = dup(STDERR_FILENO);
        assert_true(lowest_free >= 0);
        close(lowest_free);
        struct rlimit tight = {.rlim_cur = (rlim_t)lowest_free + room, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        struct worker w;
        int failed = worker_init(&w);
        setrlimit(RLIMIT_NOFILE, &before);
        assert_int_equal(failed, UV_EMFILE);
    }
    struct worker w;
    assert_int_equal(worker_init(&w), 0);
    struct job stop = {.task.run = note_and_stop, .worker = &w};
    mailbox_post(&w.mailbox, &stop.task);
    assert_int_equal(worker_start(&w), 0);
    worker_join(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_runs_on_the_workers_own_thread_with_its_mailbox),
        cmocka_unit_test(what_is_posted_before_the_start_is_run),
        cmocka_unit_test(a_stopped_worker_ends_only_when_its_last_handle_is_closed),
        cmocka_unit_test(a_worker_can_be_started_and_stopped_many_times),
        cmocka_unit_test(workers_pass_a_task_around_a_ring),
        cmocka_unit_test(a_worker_without_file_descriptors_logs_it_and_the_process_continues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
