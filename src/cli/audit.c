/* `admitone audit`: checks the promises on a ledger, from the ledger alone, and says what it
 * looked at and what it found. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/data_folder.h"

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
        buf_addf(&line, "        %lld holds are overdue: a server ends them when it runs\n",
                 (long long)f->overdue);
    cli_print(&line);
    buf_deinit(&line);
}

int cli_audit(char *const *args, const struct adapters *adapters) {
    struct config config;
    struct settings settings;
    struct buf why = {0};
    struct buf text = {0};
    struct ledger *ledger = NULL;
    struct report report = {0};
    int status = 2;
    if (!cli_settings(&config, &settings, args)) goto done;
    /* What is wrong goes into the report; the log is for servers. */
    log_setup(LOG_ERROR, LOG_LOGFMT);
    if (!adapters->open_ledger(&settings, true, &ledger, &why)) {
        cli_complain(&why);
        goto done;
    }
    enum lock_state lock = LOCK_UNKNOWN;
    if (!settings_share(&settings)) {
        cli_lock_path(&settings, &text);
        lock = lock_look(buf_cstr(&text));
    }
    buf_clear(&text);
    cli_ledger_name(&settings, &text);
    buf_add(&text, lock == LOCK_TAKEN  ? STR(": a server runs on it\n\n")
                   : lock == LOCK_FREE ? STR(": no server runs on it\n\n")
                                       : STR(": whether a server runs on it can't be seen\n\n"));
    cli_print(&text);
    enum err failed = ledger_check(ledger, lock == LOCK_TAKEN, on_finding, &report);
    if (failed != ERR_OK) {
        buf_addf(&why, "the ledger can't be read: %s", err_title(failed).at);
        cli_complain(&why);
        goto done;
    }
    buf_clear(&text);
    buf_addf(&text, "\n%lld checks, %lld violations, %lld holds overdue\n",
             (long long)report.checks, (long long)report.violations, (long long)report.overdue);
    cli_print(&text);
    status = report.violations == 0 ? 0 : 1;

done:
    if (ledger != NULL) ledger_close(ledger);
    config_deinit(&config);
    buf_deinit(&why);
    buf_deinit(&text);
    return status;
}
