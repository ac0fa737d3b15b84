/* The subcommands, and which adapters stand behind the ports: the only file that names them. */
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "hot/memory.h"
#include "ledger/sqlite.h"

static bool open_ledger(const struct settings *s, bool read_only, struct ledger **out,
                        struct buf *why) {
    struct buf path = {0};
    cli_ledger_path(s, &path);
    struct sqlite_ledger_options options = {.path = buf_cstr(&path),
                                            .read_only = read_only,
                                            .queue_max = s->ledger_queue_max,
                                            .batch_max = s->ledger_batch_max,
                                            .wal_bytes_max = s->ledger_wal_bytes_max,
                                            .retain_audit_days = s->retention_audit_days,
                                            .retain_ended_days = s->retention_ended_days};
    enum err failed = sqlite_ledger_open(&options, out, why);
    buf_deinit(&path);
    return failed == ERR_OK;
}

static void close_memory(void *own) {
    memory_free(own);
}

static bool open_hot(const struct settings *s, struct hot_stores *out, struct buf *why) {
    (void)s;
    (void)why;
    struct memory *m = memory_new();
    *out = (struct hot_stores){
        .queues = memory_queues(m), .seats = memory_seats(m), .own = m, .close = close_memory};
    return true;
}

static const struct command {
    const char *name;
    int (*run)(char *const *args, const struct adapters *adapters);
    const char *usage;
    const char *help;
    bool has_settings;
} commands[] = {
    {"serve", cli_serve, "admitone serve [--key value …]",
     "Runs the server until SIGTERM or Ctrl-C.\n\n"
     "  admitone serve --demo                       a first try, on http://127.0.0.1:8080\n"
     "  admitone serve --data /var/lib/admitone     keep the data there\n"
     "  admitone serve --config admitone.ini        read keys from a file\n"
     "  admitone serve --print-config               show what is in force, and from where\n",
     true},
    {"audit", cli_audit, "admitone audit [--data DIR] [--ledger sqlite:PATH]",
     "Checks on a ledger that every promise was kept: no seat sold twice, no hold without an end,\n"
     "no count that is off. Prints what it checked and found. Exits with 0 when all is well, 1 on\n"
     "a violation, 2 when it could not look. May run beside a server.\n\n"
     "  admitone audit --data /var/lib/admitone\n",
     true},
    {"version", cli_version, "admitone version", "Prints the version.\n", false},
};

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static void print_usage(FILE *to) {
    fputs("admitone lets a crowd buy something scarce, first come, first served,\n"
          "and never sells one seat twice.\n\n",
          to);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(to, "  %s\n", commands[i].usage);
    fputs("\n'admitone serve --demo' is a good start; 'admitone COMMAND --help' tells more.\n", to);
}

static void print_help(const struct command *c) {
    struct buf text = {0};
    buf_addf(&text, "%s\n\n%s", c->usage, c->help);
    if (c->has_settings) {
        buf_add(&text, STR("\nEvery key is a flag (--queue-max-active 200), an environment "
                           "variable\n(ADMITONE_QUEUE_MAX_ACTIVE=200) and a line in the INI file "
                           "([queue] max_active = 200);\na flag beats the environment, which "
                           "beats the file.\n\n"));
        config_help(setting_keys, &text);
    }
    cli_print(&text);
    buf_deinit(&text);
}

int main(int argc, char **argv) {
    static const struct adapters adapters = {.open_ledger = open_ledger, .open_hot = open_hot};
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(stdout);
        return 0;
    }
    const struct command *command = find_command(name);
    if (command == NULL) {
        if (name[0] != '\0') fprintf(stderr, "admitone: there is no command '%s'\n\n", name);
        print_usage(stderr);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(command);
            return 0;
        }
    return command->run(argv + 2, &adapters);
}
