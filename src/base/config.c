/* Reading of settings from flags, the environment and an INI file, and their help text. */
#include "base/config.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/url.h"

#define ENVIRONMENT_PREFIX "ADMITONE_"

/* Longer than any key; what does not fit is cut, and so is no key. */
#define NAME_BYTES 64

/* The longest line that inih reads as one; it would read the rest as the next line. */
#define LINE_BYTES_MAX 190
#define FILE_BYTES_MAX (1024 * 1024)

/* Far apart enough to be no typing error. */
#define DISTANCE_MAX 3

static size_t key_count(const struct config_key *keys) {
    size_t n = 0;
    while (keys[n].name != NULL) n++;
    return n;
}

enum spelling { AS_NAME, AS_FLAG, AS_VARIABLE };

/* "queue.max_active" as it is, as "queue-max-active" or as "QUEUE_MAX_ACTIVE". */
static void spell(const char *name, enum spelling how, char *out, size_t size) {
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < size; i++) {
        char c = name[i];
        if (how == AS_FLAG && (c == '.' || c == '_')) c = '-';
        if (how == AS_VARIABLE && c == '.') c = '_';
        if (how == AS_VARIABLE && c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        out[i] = c;
    }
    out[i] = '\0';
}

/* How many letters must be changed, added or left out. */
static size_t distance(const char *a, const char *b) {
    size_t row[64];
    size_t width = strlen(b);
    if (width >= 64) return 64;
    for (size_t j = 0; j <= width; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[width];
}

/* Whether the word is one of the names that the key "kafka.*" takes. */
static bool is_pair_of(const struct config_key *key, const char *word, enum spelling how) {
    char prefix[NAME_BYTES];
    if (key->kind != CONFIG_PAIRS) return false;
    spell(key->name, how, prefix, sizeof prefix);
    size_t len = strlen(prefix) - 1; /* without the '*' */
    return strncmp(word, prefix, len) == 0 && word[len] != '\0';
}

/* The key of that spelling, or -1 with the nearest one suggested in `why`. */
static int find_key(const struct config *c, const char *word, enum spelling how, struct buf *why) {
    const char *prefix = how == AS_FLAG ? "--" : how == AS_VARIABLE ? ENVIRONMENT_PREFIX : "";
    char spelled[64];
    char nearest[64] = "";
    size_t least = DISTANCE_MAX + 1;
    for (int i = 0; c->keys[i].name != NULL; i++) {
        if (is_pair_of(&c->keys[i], word, how)) return i;
        spell(c->keys[i].name, how, spelled, sizeof spelled);
        size_t d = distance(word, spelled);
        if (d == 0) return i;
        if (d < least) {
            least = d;
            memcpy(nearest, spelled, sizeof nearest);
        }
    }
    buf_addf(why, "unknown key %s%s", prefix, word);
    if (nearest[0] != '\0') buf_addf(why, "; did you mean %s%s?", prefix, nearest);
    return -1;
}

static int64_t word_in(const char *words, str wanted) {
    str rest = str_of(words);
    str word;
    for (int64_t i = 0; str_split(&rest, ' ', &word); i++)
        if (str_eq(word, wanted)) return i;
    return -1;
}

/* Puts the text into the struct, if it is a value of the key's kind. */
static bool convert(const struct config_key *key, char *text, void *into) {
    void *at = (char *)into + key->offset;
    str value = str_of(text);
    switch (key->kind) {
    case CONFIG_TEXT:
    case CONFIG_URL:
        *(const char **)at = text;
        return true;
    case CONFIG_PAIRS:
        return true; /* config_set_pair has stored it */
    case CONFIG_I64: {
        int64_t number;
        if (!str_to_i64(value, &number) || number < key->min || number > key->max) return false;
        *(int64_t *)at = number;
        return true;
    }
    case CONFIG_BOOL:
        *(bool *)at = str_eq(value, STR("true"));
        return *(bool *)at || str_eq(value, STR("false"));
    case CONFIG_WORD:
        *(int64_t *)at = word_in(key->words, value);
        return *(int64_t *)at >= 0;
    }
    assert(false && "no such kind");
    return false;
}

static void explain(const struct config_key *key, const char *source, const char *text,
                    struct buf *why) {
    buf_addf(why, "%s (%s): \"%s\" is not ", key->name, source, text);
    if (key->kind == CONFIG_I64)
        buf_addf(why, "a whole number from %lld to %lld", (long long)key->min, (long long)key->max);
    else if (key->kind == CONFIG_BOOL)
        buf_add(why, STR("true or false"));
    else
        buf_addf(why, "one of: %s", key->words);
}

/* `source` is taken over. */
static bool set(struct config *c, int index, const char *text, char *source, struct buf *why) {
    mem_free(c->texts[index]);
    mem_free(c->sources[index]);
    c->texts[index] = mem_copy_str(str_of(text));
    c->sources[index] = source;
    if (convert(&c->keys[index], c->texts[index], c->into)) return true;
    explain(&c->keys[index], source, text, why);
    return false;
}

/* "kafka-client-id" and "KAFKA_CLIENT_ID" are "client.id"; a name of a file is as it is. */
static char *pair_name(const struct config_key *key, const char *word, enum spelling how) {
    char *name = mem_copy_str(str_of(word + strlen(key->name) - 1));
    for (char *at = name; *at != '\0' && how != AS_NAME; at++) {
        if (*at == '-' || *at == '_') *at = '.';
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at - 'A' + 'a');
    }
    return name;
}

/* Replaces a pair of the same name. `source` is taken over. */
static void set_pair(struct config *c, int index, const char *word, enum spelling how,
                     const char *text, char *source) {
    char *name = pair_name(&c->keys[index], word, how);
    size_t at = 0;
    while (at < c->pair_count && strcmp(c->pairs[at].name, name) != 0) at++;
    if (at == c->pair_count) {
        c->pair_count++;
        c->pairs = mem_grow(c->pairs, (c->pair_count + 1) * sizeof *c->pairs);
        c->pair_sources = mem_grow(c->pair_sources, c->pair_count * sizeof *c->pair_sources);
        c->pairs[at + 1] = (struct config_pair){0};
        *(const struct config_pair **)(void *)((char *)c->into + c->keys[index].offset) = c->pairs;
    } else {
        mem_free((char *)c->pairs[at].name);
        mem_free((char *)c->pairs[at].value);
        mem_free(c->pair_sources[at]);
    }
    c->pairs[at] = (struct config_pair){name, mem_copy_str(str_of(text))};
    c->pair_sources[at] = source;
}

/* The word is the key, in that spelling. */
static bool set_word(struct config *c, int index, const char *word, enum spelling how,
                     const char *text, char *source, struct buf *why) {
    if (c->keys[index].kind != CONFIG_PAIRS) return set(c, index, text, source, why);
    set_pair(c, index, word, how, text, source);
    return true;
}

static char *source_of(const char *kind, const char *prefix, const char *word) {
    struct buf b = {0};
    buf_addf(&b, "%s%s%s", kind, prefix, word);
    char *copy = mem_copy_str(buf_str(&b));
    buf_deinit(&b);
    return copy;
}

struct file_reader {
    struct config *c;
    const char *path;
    struct buf *why;
};

static int on_file_line(void *user, const char *section, const char *name, const char *value) {
    struct file_reader *r = user;
    char full[NAME_BYTES];
    if (r->why->len > 0) return 0; /* the first mistake is the one to report */
    snprintf(full, sizeof full, "%s%s%s", section, section[0] == '\0' ? "" : ".", name);
    int index = find_key(r->c, full, AS_NAME, r->why);
    if (index < 0) return 0;
    if (strcmp(full, "config") == 0 && value[0] != '\0') {
        buf_add(r->why, STR("a file can't name another in config"));
        return 0;
    }
    return set_word(r->c, index, full, AS_NAME, value, source_of("file ", "", r->path), r->why);
}

/* "[section]" or "key = value", or nothing but a comment; as inih sees it, for which " ;" begins a
 * comment, too. */
static bool is_line(str line) {
    line = str_trim(line);
    if (line.len == 0 || line.at[0] == ';' || line.at[0] == '#') return true;
    bool is_header = line.at[0] == '[';
    for (size_t i = 0; i < line.len; i++) {
        char c = line.at[i];
        bool was_blank = i > 0 && (line.at[i - 1] == ' ' || line.at[i - 1] == '\t');
        if (c == ';' && was_blank) return false;
        if (is_header && c == ']') {
            str rest = str_trim(str_skip(line, i + 1));
            return rest.len == 0 || rest.at[0] == ';' || rest.at[0] == '#';
        }
        if (!is_header && (c == '=' || c == ':')) return true;
    }
    return false;
}

/* Refuses text that inih would silently misread: lines that are too long for it, lines that start
 * with white space, which it appends to the value above, and control characters. Also refuses
 * malformed lines, because inih reports only the first one and continues. */
static bool check_lines(str text, const char *path, struct buf *why) {
    str line;
    if (str_starts(text, STR("\xEF\xBB\xBF"))) text = str_skip(text, 3); /* a byte order mark */
    for (int number = 1; str_split(&text, '\n', &line); number++) {
        if (line.len > 0 && line.at[line.len - 1] == '\r') line.len--;
        bool indented = line.len > 0 && (line.at[0] == ' ' || line.at[0] == '\t');
        bool odd = false;
        for (size_t i = 0; i < line.len; i++)
            odd = odd || ((unsigned char)line.at[i] < ' ' && line.at[i] != '\t');
        if (odd)
            buf_addf(why, "%s: line %d has a control character", path, number);
        else if (line.len > LINE_BYTES_MAX)
            buf_addf(why,
                     "%s: line %d has more than %d bytes; a flag or an environment variable may be "
                     "longer",
                     path, number, LINE_BYTES_MAX);
        else if (indented && str_trim(line).len > 0)
            buf_addf(why, "%s: line %d starts with white space", path, number);
        else if (!is_line(line))
            buf_addf(why, "%s: line %d is neither \"key = value\" nor \"[section]\"", path, number);
        if (why->len > 0) return false;
    }
    return true;
}

static bool config_read_text(const char *path, struct buf *text, struct buf *why) {
    FILE *file = fopen(path, "re");
    size_t got = 0;
    if (file != NULL) got = fread(buf_reserve(text, FILE_BYTES_MAX + 1), 1, FILE_BYTES_MAX, file);
    bool failed = file == NULL || ferror(file) != 0;
    if (failed)
        buf_addf(why, "cannot read the configuration file %s: %s", path, strerror(errno));
    else if (got == FILE_BYTES_MAX)
        buf_addf(why, "the configuration file %s is too large", path);
    if (file != NULL) fclose(file);
    text->len = got;
    return why->len == 0;
}

static bool read_file(struct config *c, const char *path, struct buf *why) {
    struct file_reader reader = {c, path, why};
    struct buf text = {0};
    if (config_read_text(path, &text, why) && check_lines(buf_str(&text), path, why)) {
        int line = ini_parse_string(buf_cstr(&text), on_file_line, &reader);
        if (line != 0) buf_addf(why, " (%s, line %d)", path, line);
    }
    buf_deinit(&text);
    return why->len == 0;
}

/* Kubernetes sets these in every pod beside a Service whose name is admitone or begins so:
 * ADMITONE_SERVICE_HOST, ADMITONE_SERVICE_PORT, ADMITONE_SERVICE_PORT_HTTP, ADMITONE_PORT (which is
 * tcp://…) and ADMITONE_PORT_8080_TCP…. */
static bool is_of_service(const char *variable) {
    return str_matches(variable, "^[^=]*_(SERVICE_HOST=|SERVICE_PORT(_[^=]*)?=|"
                                 "PORT=(tcp|udp|sctp)://|"
                                 "PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=)");
}

static bool read_environment(struct config *c, char *const *environment, struct buf *why) {
    for (; *environment != NULL; environment++) {
        str pair = str_of(*environment);
        str name;
        char word[NAME_BYTES];
        struct buf unknown = {0};
        if (!str_starts(pair, STR(ENVIRONMENT_PREFIX)) || !str_split(&pair, '=', &name)) continue;
        name = str_skip(name, sizeof ENVIRONMENT_PREFIX - 1);
        str_copy(str_cut(name, sizeof word - 1), word, sizeof word);
        int index = find_key(c, word, AS_VARIABLE, &unknown);
        if (index < 0 && !is_of_service(*environment)) {
            buf_add(&c->warnings, buf_str(&unknown));
            buf_add_char(&c->warnings, '\n');
        }
        buf_deinit(&unknown);
        if (index >= 0 && !set_word(c, index, word, AS_VARIABLE, pair.at == NULL ? "" : pair.at,
                                    source_of("environment ", ENVIRONMENT_PREFIX, word), why))
            return false;
    }
    return true;
}

/* `--key value`, `--key=value`, and `--key` for a switch. */
static bool read_flags(struct config *c, char *const *args, struct buf *why) {
    while (*args != NULL) {
        str word = str_of(*args++);
        str name;
        char flag[NAME_BYTES];
        if (!str_starts(word, STR("--"))) {
            buf_add(why, STR("unexpected argument \""));
            url_redact(word, why); /* a URL whose flag was forgotten, perhaps */
            buf_add_char(why, '"');
            return false;
        }
        word = str_skip(word, 2);
        str_split(&word, '=', &name);
        str_copy(str_cut(name, sizeof flag - 1), flag, sizeof flag);
        int index = find_key(c, flag, AS_FLAG, why);
        if (index < 0) return false;
        const char *value = word.at;
        if (value == NULL && c->keys[index].kind == CONFIG_BOOL)
            value = "true";
        else if (value == NULL && *args != NULL)
            value = *args++;
        if (value == NULL) {
            buf_addf(why, "--%s needs a value: %s", flag, c->keys[index].argument);
            return false;
        }
        if (!set_word(c, index, flag, AS_FLAG, value, source_of("flag ", "--", flag), why))
            return false;
    }
    return true;
}

/* Where the file is, before anything else is read: a flag, else the environment. */
static const char *file_path(char *const *args, char *const *environment) {
    const char *path = NULL;
    for (; *environment != NULL; environment++)
        if (str_starts(str_of(*environment), STR(ENVIRONMENT_PREFIX "CONFIG=")))
            path = *environment + sizeof ENVIRONMENT_PREFIX "CONFIG=" - 1;
    for (; *args != NULL; args++) {
        if (str_starts(str_of(*args), STR("--config="))) path = *args + sizeof "--config=" - 1;
        if (str_eq(str_of(*args), STR("--config")) && args[1] != NULL) path = args[1];
    }
    return path;
}

bool config_load(struct config *c, const struct config_key *keys, void *into, char *const *args,
                 char *const *environment, struct buf *why) {
    size_t n = key_count(keys);
    *c = (struct config){.keys = keys,
                         .into = into,
                         .texts = mem_new(n * sizeof(char *)),
                         .sources = mem_new(n * sizeof(char *)),
                         .pairs = mem_new(sizeof(struct config_pair))};
    for (size_t i = 0; i < n; i++) {
        if (keys[i].kind == CONFIG_PAIRS)
            *(const struct config_pair **)(void *)((char *)into + keys[i].offset) = c->pairs;
        bool ok = set(c, (int)i, keys[i].otherwise, source_of("default", "", ""), why);
        assert(ok);
    }
    const char *file = file_path(args, environment);
    if (file != NULL && file[0] != '\0' && !read_file(c, file, why)) return false;
    return read_environment(c, environment, why) && read_flags(c, args, why);
}

void config_deinit(struct config *c) {
    size_t n = c->keys == NULL ? 0 : key_count(c->keys);
    for (size_t i = 0; i < n; i++) {
        mem_free(c->texts[i]);
        mem_free(c->sources[i]);
    }
    for (size_t i = 0; i < c->pair_count; i++) {
        mem_free((char *)c->pairs[i].name);
        mem_free((char *)c->pairs[i].value);
        mem_free(c->pair_sources[i]);
    }
    mem_free(c->pairs);
    mem_free(c->pair_sources);
    mem_free(c->texts);
    mem_free(c->sources);
    buf_deinit(&c->warnings);
    *c = (struct config){0};
}

static void print_key(const struct config *c, size_t index, str name, struct buf *out) {
    struct buf line = {0};
    str text = str_of(c->texts[index]);
    buf_addf(&line, "%.*s = ", (int)name.len, name.at);
    if (c->keys[index].kind == CONFIG_URL)
        url_redact(text, &line);
    else
        buf_add(&line, text);
    buf_addf(out, "%-44s ; %s\n", buf_cstr(&line), c->sources[index]);
    buf_deinit(&line);
}

static bool is_secret(const char *name) {
    return strstr(name, "password") != NULL || strstr(name, "secret") != NULL ||
           strstr(name, "pem") != NULL || strstr(name, "jaas") != NULL;
}

static void print_pairs(const struct config *c, struct buf *out) {
    for (size_t i = 0; i < c->pair_count; i++) {
        struct buf line = {0};
        const struct config_pair *p = &c->pairs[i];
        buf_addf(&line, "%s = %s", p->name, is_secret(p->name) ? "***" : p->value);
        buf_addf(out, "%-44s ; %s\n", buf_cstr(&line), c->pair_sources[i]);
        buf_deinit(&line);
    }
}

void config_print(const struct config *c, struct buf *out) {
    str section = STR("");
    /* Keys without a section first: behind a "[section]" line they would belong to it. */
    for (size_t i = 0; c->keys[i].name != NULL; i++) {
        /* A file can't name another: what is printed can be read again. */
        if (strcmp(c->keys[i].name, "config") == 0) buf_add(out, STR("; "));
        if (strchr(c->keys[i].name, '.') == NULL) print_key(c, i, str_of(c->keys[i].name), out);
    }
    for (size_t i = 0; c->keys[i].name != NULL; i++) {
        str name = str_of(c->keys[i].name);
        str own;
        str_split(&name, '.', &own);
        if (name.at == NULL) continue;
        if (c->keys[i].kind == CONFIG_PAIRS && c->pair_count == 0) continue;
        if (!str_eq(own, section)) buf_addf(out, "\n[%.*s]\n", (int)own.len, own.at);
        section = own;
        if (c->keys[i].kind == CONFIG_PAIRS)
            print_pairs(c, out);
        else
            print_key(c, i, name, out);
    }
}

void config_help(const struct config_key *keys, struct buf *out) {
    for (; keys->name != NULL; keys++) {
        char flag[64];
        struct buf left = {0};
        spell(keys->name, AS_FLAG, flag, sizeof flag);
        buf_addf(&left, "--%s %s", flag, keys->argument);
        buf_addf(out, "  %-40s %s", buf_cstr(&left), keys->help);
        if (keys->words != NULL) buf_addf(out, " (one of: %s)", keys->words);
        bool is_off = keys->kind == CONFIG_BOOL && strcmp(keys->otherwise, "false") == 0;
        if (keys->otherwise[0] != '\0' && !is_off) buf_addf(out, " [%s]", keys->otherwise);
        buf_add_char(out, '\n');
        buf_deinit(&left);
    }
}
