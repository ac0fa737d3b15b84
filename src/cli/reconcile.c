/* `admitone reconcile`: compares the hot store that nodes share with the ledger, repairs what has
 * differed for too long, and says what it compared and did. May run beside the nodes, which do the
 * same by themselves, only seldom. */
#include <stdio.h>

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/url.h"
#include "cli/cli.h"
#include "run/mailbox.h"
#include "service/reconcile.h"

/* At most this many differences are shown one by one. */
#define LINES_MAX 100

struct reconcile_command {
    struct config config;
    struct settings settings;
    struct hot_stores hot;
    struct reconcile reconcile;
    uv_loop_t loop;
    struct mailbox mailbox;
    uv_timer_t timer;
    struct reconcile_repair repair;
};

/* ---- what was compared ---- */

static void add_count(struct buf *out, size_t count, const char *of_what) {
    buf_addf(out, "%zu %s%s", count, of_what, count == 1 ? "" : "s");
}

static void print_head(const struct reconcile_command *x, uint32_t epoch) {
    struct buf text = {0};
    buf_add(&text, STR("Redis at "));
    url_add_place(str_of(x->settings.hot), &text);
    buf_addf(&text, " (incarnation %u) and ", epoch);
    cli_ledger_name(&x->settings, &text);
    buf_add(&text, STR("\n\n"));
    buf_addf(&text, "  %-40s %21s %21s\n", "", "entries", "reservations");
    buf_addf(&text, "  %-40s %10s %10s %10s %10s %8s\n", "event", "ledger", "hot", "ledger", "hot",
             "differ");
    cli_print(&text);
    buf_deinit(&text);
}

static void print_event(const struct compared_event *e) {
    struct buf text = {0};
    if (e->is_missing)
        buf_addf(&text, "  %-40s %10zu %10s %10zu %10s %8s\n", e->name, e->ledger_entries, "-",
                 e->ledger_reservations, "-", "MISSING");
    else
        buf_addf(&text, "  %-40s %10zu %10zu %10zu %10zu %8zu\n", e->name, e->ledger_entries,
                 e->hot_entries, e->ledger_reservations, e->hot_reservations, e->differences);
    cli_print(&text);
    buf_deinit(&text);
}

static size_t count_missing(const struct reconcile *r) {
    size_t missing = 0;
    for (size_t i = 0; i < r->event_count; i++) missing += r->events[i].is_missing;
    return missing;
}

/* ---- repairing ---- */

static void cli_on_repaired(struct reconcile_repair *repair) {
    struct reconcile_command *x = CONTAINER_OF(repair, struct reconcile_command, repair);
    x->hot.detach(x->hot.stores);
    uv_close((uv_handle_t *)&x->timer, NULL);
    mailbox_close(&x->mailbox);
}

static void cli_on_repair_timer(uv_timer_t *timer) {
    struct reconcile_command *x = timer->data;
    x->repair.reconcile = &x->reconcile;
    x->repair.done = cli_on_repaired;
    reconcile_repair(&x->repair);
}

/* Waits for as long as a difference must have lasted, and connects to the hot store during that
 * time. */
static void cli_repair(struct reconcile_command *x) {
    struct buf text = {0};
    buf_add_char(&text, '\n');
    add_count(&text, x->reconcile.difference_count + x->reconcile.left_out, "difference");
    buf_addf(
        &text,
        "; those that still exist after %.1f s are repaired: pending writes are done by then\n\n",
        (double)x->reconcile.wait_ms / 1000);
    cli_print(&text);
    buf_deinit(&text);
    uv_loop_init(&x->loop);
    mailbox_init(&x->mailbox, &x->loop);
    mailbox_set_mine(&x->mailbox);
    uv_timer_init(&x->loop, &x->timer);
    x->timer.data = x;
    uv_timer_start(&x->timer, cli_on_repair_timer, (uint64_t)x->reconcile.wait_ms, 0);
    x->hot.attach(x->hot.stores, &x->loop);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&x->loop);
    assert(busy == 0);
    mailbox_deinit(&x->mailbox);
}

static void print_difference(const struct reconcile *r, const struct difference *d) {
    struct buf text = {0};
    buf_addf(&text, "  %-9s ", d->end == DIFFERENCE_REPAIRED ? "repaired" : "FAILED");
    difference_describe(r, d, &text);
    if (d->end == DIFFERENCE_FAILED)
        buf_addf(&text, "\n            %.*s", (int)err_title(d->error).len, err_title(d->error).at);
    buf_add_char(&text, '\n');
    cli_print(&text);
    buf_deinit(&text);
}

/* The exit status. */
static int print_result(const struct reconcile *r) {
    size_t ends[DIFFERENCE_FAILED + 1] = {0};
    for (size_t i = 0; i < r->difference_count; i++) {
        const struct difference *d = &r->differences[i];
        ends[d->end]++;
        size_t lasted = ends[DIFFERENCE_REPAIRED] + ends[DIFFERENCE_FAILED];
        if (d->end != DIFFERENCE_GONE && lasted <= LINES_MAX) print_difference(r, d);
        if (d->end != DIFFERENCE_GONE && lasted == LINES_MAX + 1) puts("  …");
    }
    size_t missing = count_missing(r);
    struct buf text = {0};
    buf_add_char(&text, '\n');
    add_count(&text, r->event_count - missing, "event");
    buf_add(&text, STR(" compared, "));
    add_count(&text, r->difference_count + r->left_out, "difference");
    buf_addf(&text, ": %zu repaired, %zu disappeared by themselves, %zu could not be repaired\n",
             ends[DIFFERENCE_REPAIRED], ends[DIFFERENCE_GONE], ends[DIFFERENCE_FAILED]);
    if (r->left_out > 0)
        buf_addf(&text, "%zu more were left for the next time: run it again\n", r->left_out);
    if (missing > 0) {
        add_count(&text, missing, "event");
        buf_add(&text, STR(" missing in Redis: a node rebuilds it from the ledger as soon as it "
                           "sees that, or after 'redis-cli DEL admitone:{hot}:incarnation'\n"));
    }
    cli_print(&text);
    buf_deinit(&text);
    return ends[DIFFERENCE_FAILED] + r->left_out + missing == 0 ? 0 : 1;
}

/* ---- the command ---- */

static bool open_stores(struct reconcile_command *x, const struct adapters *adapters,
                        struct buf *why) {
    struct reconcile *r = &x->reconcile;
    /* The nodes' retention settings may differ from this command's, so it removes nothing. */
    x->settings.retention_audit_days = 0;
    x->settings.retention_ended_days = 0;
    if (!adapters->open_ledger(&x->settings, false, &r->ledger, why) ||
        !adapters->open_hot(&x->settings, ledger_epoch(r->ledger), &x->hot, why))
        return false;
    r->hot = x->hot.hot;
    r->queues = x->hot.queues;
    r->seats = x->hot.seats;
    r->wait_ms = 2 * x->settings.ledger_deadline_ms;
    return true;
}

static int cli_reconcile_run(struct reconcile_command *x, const struct adapters *adapters,
                             struct buf *why) {
    struct reconcile *r = &x->reconcile;
    struct hot_incarnation incarnation;
    if (!settings_check_stores(&x->settings, why)) return 2;
    if (!settings_is_cluster(&x->settings)) {
        puts("There is nothing to reconcile: with --hot memory the hot store is a part of the\n"
             "server, which fills it from the ledger at every start.");
        return 0;
    }
    if (!open_stores(x, adapters, why) ||
        !cli_open_incarnation(r->ledger, x->hot.hot, &incarnation, why))
        return 2;
    enum err failed = reconcile_compare(r);
    if (failed != ERR_OK) {
        buf_addf(why, "can't compare: %s", err_title(failed).at);
        return 2;
    }
    print_head(x, incarnation.epoch);
    for (size_t i = 0; i < r->event_count; i++) print_event(&r->events[i]);
    if (r->difference_count > 0) cli_repair(x);
    return print_result(r);
}

int cli_reconcile(char *const *args, const struct adapters *adapters) {
    struct reconcile_command *x = mem_new(sizeof *x);
    struct buf why = {0};
    int status = 2;
    if (cli_settings(&x->config, &x->settings, args)) {
        cli_warn(&x->config, cli_print_warning);
        /* Findings go into the report; the log shows only errors. */
        log_setup(LOG_ERROR, LOG_LOGFMT);
        status = cli_reconcile_run(x, adapters, &why);
        if (why.len > 0) cli_complain(&why);
    }
    reconcile_clear(&x->reconcile);
    if (x->hot.close != NULL) x->hot.close(x->hot.stores);
    if (x->reconcile.ledger != NULL) ledger_close(x->reconcile.ledger);
    config_deinit(&x->config);
    buf_deinit(&why);
    mem_free(x);
    return status;
}
