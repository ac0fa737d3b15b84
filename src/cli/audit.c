/* `admitone audit`: checks the promises on a ledger, from the ledger alone, and says what it
 * looked at and what it found. Boards that nodes share are recounted too. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/data_folder.h"
#include "service/recount.h"

/* How often the boards are asked before they count as silent, and how long apart: it takes a moment
 * until there is a connection. */
#define LOOKS_MAX 100
#define LOOK_AGAIN_MS 20

struct report {
    int64_t checks;
    int64_t violations;
    int64_t overdue;
};

static void on_finding(void *to, const struct ledger_finding *f) {
    struct report *report = to;
    struct buf line = {0};
    report->checks++;
    report->violations += f->violations;
    report->overdue += f->overdue;
    buf_addf(&line, "  %-5s %-48.*s %12lld checked\n", f->violations == 0 ? "ok" : "FAIL",
             (int)f->invariant.len, f->invariant.at, (long long)f->checked);
    for (size_t i = 0; i < line.len; i++)
        if (line.bytes[i] == '_') line.bytes[i] = ' ';
    if (f->violations > 0)
        buf_addf(&line, "        %lld violations, such as: %.*s\n", (long long)f->violations,
                 (int)f->examples.len, f->examples.at);
    if (f->overdue > 0)
        buf_addf(&line, "        %lld holds are overdue; a running server ends them\n",
                 (long long)f->overdue);
    cli_print(&line);
    buf_deinit(&line);
}

/* ---- boards in Redis ---- */

struct board_audit {
    struct recount recount;
    struct hot_stores hot;
    uv_loop_t loop;
    uv_timer_t again;
    int looks;
};

static void on_again(uv_timer_t *timer) {
    struct board_audit *a = timer->data;
    a->looks++;
    recount_look(&a->recount);
}

static void audit_on_looked(struct recount *r) {
    struct board_audit *a = CONTAINER_OF(r, struct board_audit, recount);
    if (r->find.result != ERR_OK && a->looks < LOOKS_MAX) {
        uv_timer_start(&a->again, on_again, LOOK_AGAIN_MS, 0);
        return;
    }
    a->hot.detach(a->hot.stores);
    uv_close((uv_handle_t *)&a->again, NULL);
}

static void look_at_boards(struct board_audit *a) {
    uv_loop_init(&a->loop);
    uv_timer_init(&a->loop, &a->again);
    a->again.data = a;
    uv_timer_start(&a->again, on_again, 0, 0);
    a->hot.attach(a->hot.stores, &a->loop);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&a->loop);
    assert(busy == 0);
}

/* False: they can't be looked at, and `why`. */
static bool recount_boards(struct board_audit *a, const struct settings *s,
                           const struct adapters *adapters, struct buf *why) {
    struct recount *r = &a->recount;
    struct hot_incarnation incarnation;
    if (!adapters->open_hot(s, 0, &a->hot, why)) return false;
    if (!cli_open_incarnation(r->ledger, a->hot.hot, &incarnation, why)) return false;
    clock_zone_set(s->rankings_time_zone);
    r->boards = a->hot.boards;
    r->now_ms = clock_wall_ms();
    r->done = audit_on_looked;
    enum err failed = recount_begin(r);
    if (failed == ERR_OK) {
        look_at_boards(a);
        failed = r->find.result;
    }
    if (failed == ERR_OK) failed = recount_end(r);
    if (failed != ERR_OK) buf_addf(why, "cannot read: %s", err_title(failed).at);
    return failed == ERR_OK;
}

/* False: they could not be looked at. */
static bool audit_boards(struct ledger *ledger, const struct settings *s,
                         const struct adapters *adapters, struct report *report) {
    struct board_audit a = {.recount.ledger = ledger};
    struct buf why = {0};
    struct buf line = {0};
    bool looked = recount_boards(&a, s, adapters, &why);
    if (looked) {
        on_finding(report, &(struct ledger_finding){.invariant = STR("boards_equal_a_recount"),
                                                    .checked = a.recount.checked,
                                                    .violations = a.recount.violations,
                                                    .examples = buf_str(&a.recount.examples)});
        if (a.recount.uncounted > 0)
            buf_addf(&line, "        %lld sales are not counted yet; a running node counts them\n",
                     (long long)a.recount.uncounted);
    } else {
        buf_addf(&line, "  %-5s the boards in Redis could not be checked: %.*s\n", "FAIL",
                 (int)why.len, why.bytes);
    }
    cli_print(&line);
    buf_deinit(&line);
    recount_clear(&a.recount);
    if (a.hot.close != NULL) a.hot.close(a.hot.stores);
    buf_deinit(&why);
    return looked;
}

/* ---- the command ---- */

int cli_audit(char *const *args, const struct adapters *adapters) {
    struct config config;
    struct settings settings;
    struct buf why = {0};
    struct buf text = {0};
    struct ledger *ledger = NULL;
    struct report report = {0};
    int status = 2;
    if (!cli_settings(&config, &settings, args)) goto done;
    cli_warn(&config, cli_print_warning);
    /* Findings go into the report; the log shows only errors. */
    log_setup(LOG_ERROR, LOG_LOGFMT);
    enum lock_state lock = LOCK_UNKNOWN;
    if (!settings_is_cluster(&settings)) {
        cli_ledger_path(&settings, &text);
        lock = lock_look(buf_cstr(&text));
    }
    if (!adapters->open_ledger(&settings, true, &ledger, &why)) {
        cli_complain(&why);
        goto done;
    }
    buf_clear(&text);
    cli_ledger_name(&settings, &text);
    buf_add(&text, lock == LOCK_TAKEN  ? STR(": a server runs on it\n\n")
                   : lock == LOCK_FREE ? STR(": no server runs on it\n\n")
                                       : STR(": cannot see whether a server runs on it\n\n"));
    cli_print(&text);
    enum err failed = ledger_check(ledger, lock == LOCK_TAKEN, on_finding, &report);
    if (failed != ERR_OK) {
        buf_addf(&why, "cannot read from the ledger: %s", err_title(failed).at);
        cli_complain(&why);
        goto done;
    }
    bool looked = true;
    buf_clear(&text);
    if (settings_is_cluster(&settings) && settings.rankings_enabled) {
        if (strcmp(settings.hot, "memory") != 0)
            looked = audit_boards(ledger, &settings, adapters, &report);
        else
            buf_add(&text,
                    STR("  -     the boards in Redis were not checked: give its address with "
                        "--hot redis://…\n"));
    }
    buf_addf(&text, "\n%lld checks, %lld violations, %lld holds overdue\n",
             (long long)report.checks, (long long)report.violations, (long long)report.overdue);
    cli_print(&text);
    status = report.violations > 0 ? 1 : looked ? 0 : 2;

done:
    if (ledger != NULL) ledger_close(ledger);
    config_deinit(&config);
    buf_deinit(&why);
    buf_deinit(&text);
    return status;
}
