/* Functions that the subcommands share: settings, messages, paths of the stores. */
#include "cli/cli.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/url.h"

void cli_print(struct buf *text) {
    if (text->len == 0) return;
    fwrite(text->bytes, 1, text->len, stdout);
    fflush(stdout);
}

void cli_complain(const struct buf *why) {
    fprintf(stderr, "admitone: %.*s\n", (int)why->len, why->bytes);
}

char **cli_copy_args(char *const *args) {
    size_t n = 0;
    while (args[n] != NULL) n++;
    char **copy = mem_new((n + 1) * sizeof *copy);
    memcpy(copy, args, n * sizeof *copy);
    return copy;
}

bool cli_take_word(char **args, const char *word) {
    for (; *args != NULL; args++) {
        if (strcmp(*args, word) != 0) continue;
        for (; *args != NULL; args++) args[0] = args[1];
        return true;
    }
    return false;
}

bool cli_settings(struct config *config, struct settings *s, char *const *args) {
    struct buf why = {0};
    bool ok = config_load(config, setting_keys, s, args, environ, &why) && settings_check(s, &why);
    if (!ok) {
        buf_add(&why, STR("\nadmitone: 'admitone serve --help' lists every key"));
        cli_complain(&why);
    }
    buf_deinit(&why);
    return ok;
}

void cli_warn(const struct config *config, void (*tell)(str warning)) {
    str rest = buf_str(&config->warnings);
    str line;
    while (str_split(&rest, '\n', &line))
        if (line.len > 0) tell(line);
}

void cli_print_warning(str warning) {
    fprintf(stderr, "admitone: warning: ignored: %.*s\n", (int)warning.len, warning.at);
}

void cli_ledger_path(const struct settings *s, struct buf *out) {
    str path = str_skip(str_of(s->ledger), sizeof "sqlite:" - 1);
    if (path.len > 0)
        buf_add(out, path);
    else
        buf_addf(out, "%s/admitone.db", s->data);
}

void cli_ledger_name(const struct settings *s, struct buf *out) {
    if (!settings_is_cluster(s)) {
        cli_ledger_path(s, out);
        return;
    }
    buf_add(out, STR("PostgreSQL at "));
    url_add_place(str_of(s->ledger), out);
}

bool cli_check_clock(struct buf *why) {
    int64_t now_ms = clock_wall_ms();
    char text[CLOCK_TEXT_BYTES];
    const char *shown = "a year of another length than four digits";
    if (clock_plausible(now_ms)) return true;
    if (clock_writable(now_ms)) {
        clock_format(now_ms, text);
        shown = text;
    }
    buf_addf(
        why,
        "the clock of this machine is wrong: it says %s. Set it and start again; queues, holds "
        "and tokens depend on it",
        shown);
    return false;
}

int cli_version(char *const *args, const struct adapters *adapters) {
    (void)args;
    (void)adapters;
    puts("admitone " ADMITONE_VERSION);
    return 0;
}

bool cli_open_incarnation(struct ledger *ledger, struct hot *hot,
                          struct hot_incarnation *incarnation, struct buf *why) {
    struct hot_incarnation wanted = {0};
    enum err failed = ledger_incarnation(ledger, &wanted);
    if (failed == ERR_OK) failed = hot_incarnation_read(hot, incarnation);
    if (failed != ERR_OK) {
        buf_addf(why, "cannot read from Redis or the ledger: %s", err_title(failed).at);
        return false;
    }
    if (wanted.epoch == 0 || wanted.epoch != incarnation->epoch ||
        strcmp(wanted.identity, incarnation->identity) != 0) {
        buf_add(why, STR("Redis is not in the incarnation that the ledger expects; a running node "
                         "rebuilds it from the ledger. Try again when that is done"));
        return false;
    }
    hot_open(hot, incarnation);
    return true;
}
