/* `admitone ledger new-generation`: after a restore that the ledger cannot recognise by itself. */
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/data_folder.h"

/* No server may run on the ledger: it would go on with the old generation. Of a shared ledger the
 * adapter knows whether nodes run. False: `why`. */
static bool cli_ledger_renew(const struct settings *s, const struct adapters *adapters,
                             struct buf *why) {
    struct buf path = {0};
    struct buf pid_path = {0};
    struct buf what = {0};
    int lock = -1;
    bool ok = true;
    if (!settings_is_cluster(s)) {
        cli_ledger_path(s, &path);
        ok = access(buf_cstr(&path), F_OK) == 0;
        if (!ok) buf_addf(why, "there is no ledger at %s", buf_cstr(&path));
        buf_addf(&what, "the ledger %s", buf_cstr(&path));
        buf_addf(&pid_path, "%s.lock", buf_cstr(&path));
        ok = ok && lock_take(buf_cstr(&path), buf_cstr(&pid_path), buf_cstr(&what), &lock, why);
    }
    ok = ok && adapters->renew_ledger(s, why);
    if (lock >= 0) close(lock);
    buf_deinit(&path);
    buf_deinit(&pid_path);
    buf_deinit(&what);
    return ok;
}

int cli_ledger(char *const *args, const struct adapters *adapters) {
    struct config config;
    struct settings settings;
    struct buf why = {0};
    struct buf text = {0};
    char **own_args = cli_copy_args(args);
    int status = 2;
    bool is_named = own_args[0] != NULL && str_eq(str_of(own_args[0]), STR("new-generation"));
    if (!is_named) {
        buf_add(&why, STR("usage: admitone ledger new-generation [--data DIR | --ledger …]"));
        cli_complain(&why);
        goto usage;
    }
    if (!cli_settings(&config, &settings, own_args + 1)) goto done;
    cli_warn(&config, cli_print_warning);
    log_setup(LOG_ERROR, LOG_LOGFMT);
    if (cli_ledger_renew(&settings, adapters, &why)) {
        cli_ledger_name(&settings, &text);
        buf_add(&text, STR(" has begun a new generation. Entry tokens that were issued before are "
                           "void; users\nget new ones by entering again, and keep the places that "
                           "the ledger has.\n"));
        cli_print(&text);
        status = 0;
    } else {
        cli_complain(&why);
        status = 1;
    }
done:
    config_deinit(&config);
usage:
    mem_free(own_args);
    buf_deinit(&why);
    buf_deinit(&text);
    return status;
}
