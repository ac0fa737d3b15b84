/* `admitone keys`: lists, adds and removes named keys, in the file that running servers follow. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/data_folder.h"
#include "cli/keys_file.h"
#include "core/event.h"

enum keys_verb { KEYS_LIST, KEYS_ADD, KEYS_REMOVE, KEYS_VERBS };

struct keys_command {
    struct settings settings;
    struct config config;
    enum keys_verb verb;
    str name;
    enum key_role role;
    struct buf path;
    struct buf text; /* of the file */
    struct key_ring ring;
    struct buf why;
};

static bool keys_usage(struct keys_command *c, const char *wrong) {
    buf_addf(&c->why, "keys: %s; 'admitone keys --help' shows how it is used", wrong);
    return false;
}

/* The words before the settings. `*args` is moved behind them. */
static bool keys_parse(struct keys_command *c, char ***args) {
    static const char *const verbs[KEYS_VERBS] = {"list", "add", "remove"};
    static const int words[KEYS_VERBS] = {1, 3, 2};
    char **at = *args;
    int count = 0;
    int verb = 0;
    while (at[count] != NULL && at[count][0] != '-') count++;
    *args = at + count;
    while (count > 0 && verb < KEYS_VERBS && strcmp(at[0], verbs[verb]) != 0) verb++;
    if (count == 0 || verb == KEYS_VERBS)
        return keys_usage(c, "it needs a word: list, add or remove");
    if (count != words[verb])
        return keys_usage(c, verb == KEYS_ADD      ? "add needs a NAME and a ROLE"
                             : verb == KEYS_REMOVE ? "remove needs a NAME"
                                                   : "list needs no further word");
    c->verb = (enum keys_verb)verb;
    if (verb == KEYS_LIST) return true;
    c->name = str_of(at[1]);
    if (verb == KEYS_ADD && !key_name_ok(c->name))
        return keys_usage(c, "a name has up to 32 letters, digits, '_', '-' or '.', and is not "
                             "admin or demo");
    int role = verb == KEYS_ADD ? word_index(key_role_words, str_of(at[2])) : 0;
    if (role < 0) return keys_usage(c, "the role is one of read, shop, operate, own");
    c->role = (enum key_role)role;
    return true;
}

/* Two commands that change the file at once follow each other. Held until the process ends. The
 * folder itself is locked by the server that runs on it, and the file is replaced by each change.
 */
static bool lock_keys(struct keys_command *c) {
    struct buf path = {0};
    buf_addf(&path, "%s.lock", buf_cstr(&c->path));
    int fd = open(buf_cstr(&path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        buf_addf(&c->why, "cannot lock %s: %s", buf_cstr(&path), strerror(errno));
    buf_deinit(&path);
    return c->why.len == 0;
}

static int keys_list(const struct keys_command *c) {
    if (c->ring.count == 0) fprintf(stderr, "no named keys in %s\n", c->path.bytes);
    for (size_t i = 0; i < c->ring.count; i++) {
        const struct key *key = &c->ring.keys[i];
        printf("%-*s  %-8s  sha256:%02x%02x%02x%02x…\n", KEY_NAME_BYTES_MAX, key->name,
               key_role_words[key->role].at, key->digest[0], key->digest[1], key->digest[2],
               key->digest[3]);
    }
    return 0;
}

static int keys_add(struct keys_command *c) {
    unsigned char random[KEY_RANDOM_BYTES];
    unsigned char digest[SHA256_BYTES];
    char key[KEY_TEXT_BYTES];
    if (key_ring_named(&c->ring, c->name) != NULL) {
        buf_addf(&c->why,
                 "there is a key \"%s\" already: to replace it, add one with another name, "
                 "let its user change to that, and remove this one",
                 c->name.at);
        return 1;
    }
    if (c->ring.count == KEY_RING_MAX) {
        buf_addf(&c->why, "there are %d keys already, which is the most", KEY_RING_MAX);
        return 1;
    }
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        buf_add(&c->why, STR("cannot read random bytes"));
        return 2;
    }
    key_text_from(random, key);
    sha256_of((str){key, sizeof key}, digest);
    if (c->text.len > 0 && c->text.bytes[c->text.len - 1] != '\n') buf_add_char(&c->text, '\n');
    key_line_add(&c->text, c->name, c->role, digest);
    if (!secret_file_write(buf_cstr(&c->path), buf_str(&c->text), &c->why)) return 2;
    fprintf(stderr,
            "The key \"%s\" with the role %s, which is shown only this once. Servers that run\n"
            "accept it within seconds.\n",
            c->name.at, key_role_words[c->role].at);
    printf("%.*s\n", (int)sizeof key, key);
    return 0;
}

static int keys_remove(struct keys_command *c) {
    struct buf rest = {0};
    str text = buf_str(&c->text);
    str line;
    if (key_ring_named(&c->ring, c->name) == NULL) {
        buf_addf(&c->why, "there is no key \"%s\" in %s", c->name.at, buf_cstr(&c->path));
        return 1;
    }
    while (str_split(&text, '\n', &line)) {
        bool is_last = text.at == NULL;
        if (str_eq(key_line_name(line), c->name)) continue;
        buf_add(&rest, line);
        if (!is_last) buf_add_char(&rest, '\n');
    }
    bool ok = secret_file_write(buf_cstr(&c->path), buf_str(&rest), &c->why);
    buf_deinit(&rest);
    if (ok) fprintf(stderr, "Servers that run refuse the key within seconds.\n");
    return ok ? 0 : 2;
}

static int keys_run(struct keys_command *c) {
    struct stat about;
    keys_file_path(&c->settings, &c->path);
    if (c->verb != KEYS_LIST && !lock_keys(c)) return 2;
    if (!keys_file_read(buf_cstr(&c->path), false, &c->ring, &c->text, &about, &c->why)) return 2;
    if (c->verb == KEYS_LIST) return keys_list(c);
    return c->verb == KEYS_ADD ? keys_add(c) : keys_remove(c);
}

int cli_keys(char *const *args, const struct adapters *adapters) {
    (void)adapters;
    struct keys_command *c = mem_new(sizeof *c);
    char **own_args = cli_copy_args(args);
    char **rest = own_args;
    int status = 2;
    if (keys_parse(c, &rest) && cli_settings(&c->config, &c->settings, rest)) {
        cli_warn(&c->config, cli_print_warning);
        status = keys_run(c);
    }
    if (c->why.len > 0) cli_complain(&c->why);
    config_deinit(&c->config);
    buf_deinit(&c->path);
    buf_deinit(&c->text);
    buf_deinit(&c->why);
    mem_free(c);
    mem_free(own_args);
    return status;
}
