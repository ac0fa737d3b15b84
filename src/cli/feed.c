/* `admitone feed`: shows an operator how far the asynchronous requests are decided, and what became
 * of messages that could not be: dead letters. The local feed is a part of the ledger and has none;
 * a feed in Kafka is asked through port/feed_admin.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"
#include "base/log.h"
#include "cli/cli.h"
#include "run/mailbox.h"

/* How much of a value is shown where the output is not a terminal, and at least on a narrow one. */
#define VALUE_COLUMNS 80
#define VALUE_COLUMNS_MIN 20

/* The first character with two columns in a terminal, about; too many are counted, never too few.
 */
#define WIDE_FROM 0x1100

struct feed_command {
    const struct adapters *adapters;
    struct config config;
    struct settings settings;
    bool is_json;
    bool is_sure;   /* --yes */
    struct buf why; /* what was wrong, for the user */
};

/* ---- words and texts ---- */

/* `word`: NULL, or the one that is wrong. */
static bool feed_usage(struct feed_command *c, const char *what, const char *word) {
    buf_add(&c->why, str_of(what));
    if (word != NULL) buf_addf(&c->why, ": \"%s\"", word);
    buf_add(&c->why, STR("\n\n"
                         "  admitone feed status          --feed kafka://HOST:PORT [--json]\n"
                         "  admitone feed dlq list        --feed kafka://HOST:PORT [--json]\n"
                         "  admitone feed dlq retry ID    --feed kafka://HOST:PORT\n"
                         "  admitone feed dlq drop ID     --feed kafka://HOST:PORT\n\n"
                         "admitone: 'admitone feed --help' explains them"));
    return false;
}

static void feed_add_count(struct buf *out, int64_t number, const char *of_what) {
    buf_addf(out, "%lld %s%s", (long long)number, of_what, number == 1 ? "" : "s");
}

/* The length of the UTF-8 character at the beginning, in bytes; 0: there is none, or a control
 * character. */
static size_t feed_character(str rest) {
    for (size_t n = 1; n <= 4 && n <= rest.len; n++)
        if (str_is_text((str){rest.at, n})) return n;
    return 0;
}

static int feed_columns_of(str character) {
    unsigned char lead = (unsigned char)character.at[0];
    if (character.len < 3) return 1;
    unsigned second = (unsigned char)character.at[1] & 0x3f;
    bool is_narrow = character.len == 3 && ((lead & 0x0fu) << 12 | second << 6) < WIDE_FROM;
    return is_narrow ? 1 : 2;
}

/* The character at the beginning as it is shown: as it is, or escaped. Returns how many bytes it
 * takes of `rest`. */
static size_t feed_show_character(str rest, char out[8]) {
    size_t n = feed_character(rest);
    unsigned char byte = (unsigned char)rest.at[0];
    if (n > 0)
        snprintf(out, 8, "%.*s", (int)n, rest.at);
    else if (byte == '\n' || byte == '\t')
        snprintf(out, 8, "\\%c", byte == '\n' ? 'n' : 't');
    else
        snprintf(out, 8, "\\x%02x", byte);
    return n > 0 ? n : 1;
}

/* Shows any bytes in one line of at most so many columns; control characters and bytes that are not
 * UTF-8 are escaped. `has_more`: these are not all. */
static void feed_add_shown(struct buf *out, str bytes, int columns, bool has_more) {
    size_t cut_at = out->len; /* here is one more column, for the sign that something is left out */
    int used = 0;
    while (bytes.len > 0) {
        char shown[8];
        size_t taken = feed_show_character(bytes, shown);
        bool is_escaped = shown[0] == '\\';
        int width = is_escaped ? (int)strlen(shown) : feed_columns_of(str_of(shown));
        if (used + width > columns) break;
        cut_at = out->len;
        buf_add(out, str_of(shown));
        used += width;
        bytes = str_skip(bytes, taken);
    }
    if (bytes.len == 0 && !has_more) return;
    if (used == columns) out->len = cut_at;
    buf_add(out, STR("…"));
}

/* For JSON: bytes that are not UTF-8 are replaced by U+FFFD. */
static void feed_json_bytes(struct json_out *j, str key, str bytes) {
    struct buf text = {0};
    while (bytes.len > 0) {
        size_t n = feed_character(bytes);
        bool is_ascii = (unsigned char)bytes.at[0] < 0x80;
        buf_add(&text, n > 0 || is_ascii ? (str){bytes.at, n > 0 ? n : 1} : STR("\xef\xbf\xbd"));
        bytes = str_skip(bytes, n > 0 ? n : 1);
    }
    json_out_str(j, key, buf_str(&text));
    buf_deinit(&text);
}

static void feed_print_json(struct json_out *j) {
    json_out_done(j);
    buf_add_char(j->to, '\n');
    cli_print(j->to);
    buf_deinit(j->to);
}

/* ---- status of a feed in Kafka ---- */

static bool feed_has_no_node(const struct feed_status *s, const struct feed_partition *p) {
    return p->lag > 0 && p->member < 0 && s->members_unknown == NULL;
}

static void feed_status_json(const struct feed_admin *a, const struct feed_status *s,
                             bool is_fine) {
    struct buf text = {0};
    struct json_out j;
    int64_t undecided = 0;
    json_out_init(&j, &text);
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("feed"), STR("kafka"));
    json_out_bool(&j, STR("ok"), is_fine);
    json_out_str(&j, STR("topic"), str_of(a->topic));
    json_out_str(&j, STR("group"), str_of(a->group));
    json_out_array(&j, STR("brokers"));
    for (size_t i = 0; i < s->broker_count; i++) {
        json_out_object(&j, STR(""));
        json_out_str(&j, STR("address"), str_of(s->brokers[i].address));
        json_out_bool(&j, STR("answers"), !s->brokers[i].has_failed);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_array(&j, STR("partitions"));
    for (size_t i = 0; i < s->partition_count; i++) {
        const struct feed_partition *p = &s->partitions[i];
        undecided += p->lag;
        json_out_object(&j, STR(""));
        json_out_i64(&j, STR("partition"), p->number);
        if (p->is_known)
            json_out_i64(&j, STR("end"), p->end);
        else
            json_out_null(&j, STR("end"));
        if (p->committed >= 0)
            json_out_i64(&j, STR("committed"), p->committed);
        else
            json_out_null(&j, STR("committed"));
        if (p->is_known)
            json_out_i64(&j, STR("lag"), p->lag);
        else
            json_out_null(&j, STR("lag"));
        if (p->member >= 0)
            json_out_str(&j, STR("node"), str_of(s->members[p->member].id));
        else
            json_out_null(&j, STR("node"));
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    if (s->members_unknown != NULL) json_out_null(&j, STR("nodes"));
    if (s->members_unknown == NULL) json_out_array(&j, STR("nodes"));
    for (size_t i = 0; i < s->member_count; i++) {
        json_out_object(&j, STR(""));
        json_out_str(&j, STR("id"), str_of(s->members[i].id));
        json_out_str(&j, STR("host"), str_of(s->members[i].host));
        json_out_i64(&j, STR("partitions"), s->members[i].partition_count);
        json_out_object_end(&j);
    }
    if (s->members_unknown == NULL) json_out_array_end(&j);
    json_out_i64(&j, STR("undecided"), undecided);
    json_out_i64(&j, STR("deadLetters"), (int64_t)s->dead_letters);
    json_out_object_end(&j);
    feed_print_json(&j);
}

static void feed_add_partition(struct buf *out, const struct feed_status *s,
                               const struct feed_partition *p) {
    char committed[24] = "-";
    if (p->committed >= 0) snprintf(committed, sizeof committed, "%" PRId64, p->committed);
    if (p->is_known)
        buf_addf(out, "  %9d %12" PRId64 " %12s %10" PRId64 "  ", p->number, p->end, committed,
                 p->lag);
    else
        buf_addf(out, "  %9d %12s %12s %10s  ", p->number, "?", committed, "?");
    if (p->member >= 0)
        buf_addf(out, "%d\n", p->member + 1);
    else
        buf_addf(out, "%s\n", s->members_unknown != NULL ? "?" : "-");
}

static void feed_add_problems(struct buf *out, const struct feed_status *s) {
    int64_t unread = 0;
    int64_t unread_partitions = 0;
    int64_t unknown = 0;
    for (size_t i = 0; i < s->partition_count; i++) {
        const struct feed_partition *p = &s->partitions[i];
        unknown += !p->is_known;
        if (!feed_has_no_node(s, p)) continue;
        unread += p->lag;
        unread_partitions++;
    }
    if (unknown > 0) {
        buf_add(out, STR("PROBLEM: no broker answers for "));
        feed_add_count(out, unknown, "partition");
        buf_add(out, STR(", whose requests wait: look at Kafka\n"));
    }
    if (unread > 0) {
        buf_add(out, STR("PROBLEM: "));
        feed_add_count(out, unread, "request");
        buf_addf(out, " %s in ", unread == 1 ? "waits" : "wait");
        feed_add_count(out, unread_partitions, "partition");
        buf_add(out, STR(" on which no node works: start a node with this --feed and with "
                         "feed.consume\n"));
    }
    if (s->dead_letters > 0) {
        buf_add(out, STR("PROBLEM: "));
        feed_add_count(out, (int64_t)s->dead_letters, "message");
        buf_addf(out, " could not be decided: 'admitone feed dlq list' shows %s\n",
                 s->dead_letters == 1 ? "it" : "them");
    }
}

static void feed_status_table(const struct feed_admin *a, const struct feed_status *s) {
    struct buf text = {0};
    int64_t undecided = 0;
    buf_addf(&text, "Kafka: topic %s, group %s\n\n", a->topic, a->group);
    for (size_t i = 0; i < s->broker_count; i++)
        buf_addf(&text, "  broker %s %s\n", s->brokers[i].address,
                 s->brokers[i].has_failed ? "DOES NOT ANSWER" : "answers");
    buf_addf(&text, "\n  %9s %12s %12s %10s  %s\n", "partition", "end", "committed", "lag", "node");
    for (size_t i = 0; i < s->partition_count; i++) {
        undecided += s->partitions[i].lag;
        feed_add_partition(&text, s, &s->partitions[i]);
    }
    buf_add_char(&text, '\n');
    for (size_t i = 0; i < s->member_count; i++) {
        buf_addf(&text, "  node %zu: %s at %s, ", i + 1, s->members[i].id, s->members[i].host);
        feed_add_count(&text, s->members[i].partition_count, "partition");
        buf_add_char(&text, '\n');
    }
    if (s->members_unknown != NULL)
        buf_addf(&text, "  the nodes are not known: %s\n", s->members_unknown);
    else if (s->member_count == 0)
        buf_add(&text, STR("  no node decides requests now\n"));
    buf_add_char(&text, '\n');
    feed_add_count(&text, undecided, "undecided request");
    buf_add(&text, STR(", "));
    feed_add_count(&text, (int64_t)s->dead_letters, "open dead letter");
    buf_add_char(&text, '\n');
    feed_add_problems(&text, s);
    cli_print(&text);
    buf_deinit(&text);
}

static bool feed_is_fine(const struct feed_status *s) {
    for (size_t i = 0; i < s->partition_count; i++)
        if (!s->partitions[i].is_known || feed_has_no_node(s, &s->partitions[i])) return false;
    return s->dead_letters == 0;
}

static int feed_kafka_status(struct feed_command *c, struct feed_admin *a) {
    struct feed_status s;
    int status = 2;
    if (feed_admin_status(a, &s, &c->why)) {
        status = feed_is_fine(&s) ? 0 : 1;
        if (c->is_json)
            feed_status_json(a, &s, status == 0);
        else
            feed_status_table(a, &s);
    }
    feed_status_clear(&s);
    return status;
}

/* ---- status of the local feed ---- */

struct feed_open_read {
    struct ledger_requests_open open;
    uv_loop_t loop;
    struct mailbox mailbox;
};

static void feed_on_open_read(struct task *task) {
    struct feed_open_read *r = CONTAINER_OF(task, struct feed_open_read, open.record.task);
    mailbox_close(&r->mailbox);
}

static enum err feed_read_open(struct ledger *ledger, struct feed_open_read *r) {
    r->open.record =
        (struct ledger_record){.kind = LEDGER_REQUESTS_OPEN, .task.run = feed_on_open_read};
    uv_loop_init(&r->loop);
    mailbox_init(&r->mailbox, &r->loop);
    mailbox_set_mine(&r->mailbox);
    enum err failed = ledger_ask(ledger, &r->open.record);
    if (failed != ERR_OK) mailbox_close(&r->mailbox);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&r->loop);
    assert(busy == 0);
    mailbox_deinit(&r->mailbox);
    return failed != ERR_OK ? failed : r->open.record.result;
}

static void feed_local_json(const struct open_requests *partitions, const char *ledger) {
    struct buf text = {0};
    struct json_out j;
    int64_t undecided = 0;
    json_out_init(&j, &text);
    json_out_object(&j, STR(""));
    json_out_str(&j, STR("feed"), STR("local"));
    json_out_bool(&j, STR("ok"), true);
    json_out_str(&j, STR("ledger"), str_of(ledger));
    json_out_array(&j, STR("partitions"));
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        undecided += (int64_t)partitions[i].count;
        json_out_object(&j, STR(""));
        json_out_i64(&j, STR("partition"), i);
        json_out_i64(&j, STR("lag"), (int64_t)partitions[i].count);
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_i64(&j, STR("undecided"), undecided);
    json_out_object_end(&j);
    feed_print_json(&j);
}

static void feed_local_table(const struct open_requests *partitions, const char *ledger) {
    struct buf text = {0};
    int64_t undecided = 0;
    buf_addf(&text, "The local feed: requests in %s\n\n  %9s %10s\n", ledger, "partition",
             "undecided");
    for (int i = 0; i < REQUEST_PARTITIONS; i++) {
        undecided += (int64_t)partitions[i].count;
        buf_addf(&text, "  %9d %10zu\n", i, partitions[i].count);
    }
    buf_add_char(&text, '\n');
    feed_add_count(&text, undecided, "undecided request");
    buf_add_char(&text, '\n');
    cli_print(&text);
    buf_deinit(&text);
}

static int feed_local_status(struct feed_command *c) {
    struct ledger *ledger = NULL;
    struct feed_open_read read = {0};
    struct buf name = {0};
    if (!c->adapters->open_ledger(&c->settings, true, &ledger, &c->why)) return 2;
    enum err failed = feed_read_open(ledger, &read);
    cli_ledger_name(&c->settings, &name);
    if (failed != ERR_OK)
        buf_addf(&c->why, "cannot read from the ledger: %s", err_title(failed).at);
    else if (c->is_json)
        feed_local_json(read.open.partitions, buf_cstr(&name));
    else
        feed_local_table(read.open.partitions, buf_cstr(&name));
    for (int i = 0; i < REQUEST_PARTITIONS; i++) mem_free(read.open.partitions[i].seqs);
    buf_deinit(&name);
    ledger_close(ledger);
    return failed == ERR_OK ? 0 : 2;
}

/* ---- the list of dead letters ---- */

static void feed_list_json(const struct dead_letters *letters) {
    struct buf text = {0};
    struct json_out j;
    json_out_init(&j, &text);
    json_out_object(&j, STR(""));
    json_out_array(&j, STR("deadLetters"));
    for (size_t i = 0; i < letters->count; i++) {
        const struct dead_letter *l = &letters->open[i];
        json_out_object(&j, STR(""));
        json_out_i64(&j, STR("id"), l->id);
        json_out_time(&j, STR("at"), l->at_ms);
        feed_json_bytes(&j, STR("reason"), str_of(l->reason));
        if (l->request_id != NULL)
            json_out_str(&j, STR("requestId"), str_of(l->request_id));
        else
            json_out_null(&j, STR("requestId"));
        feed_json_bytes(&j, STR("from"), str_of(l->from));
        json_out_i64(&j, STR("valueBytes"), (int64_t)l->value_bytes);
        feed_json_bytes(&j, STR("value"), (str){l->value, l->value_len});
        json_out_object_end(&j);
    }
    json_out_array_end(&j);
    json_out_i64(&j, STR("leftOut"), (int64_t)letters->left_out);
    json_out_object_end(&j);
    feed_print_json(&j);
}

/* "partition/offset" of "topic/partition/offset": it is always the same topic. */
static str feed_short_from(const struct dead_letter *l) {
    str from = str_of(l->from);
    size_t slashes = 0;
    for (size_t i = from.len; i > 0; i--)
        if (from.at[i - 1] == '/' && ++slashes == 2) return str_skip(from, i);
    return from;
}

/* 0: the output is not a terminal. */
static int feed_terminal_columns(void) {
    struct winsize size = {0};
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}

static int feed_wider(int columns, size_t len) {
    return len > (size_t)columns ? (int)len : columns;
}

static void feed_list_table(const struct dead_letters *letters) {
    struct buf text = {0};
    int reason_columns = sizeof "reason" - 1;
    int from_columns = sizeof "from" - 1;
    for (size_t i = 0; i < letters->count; i++) {
        reason_columns = feed_wider(reason_columns, strlen(letters->open[i].reason));
        from_columns = feed_wider(from_columns, feed_short_from(&letters->open[i]).len);
    }
    int before = 6 + 2 + 20 + 2 + reason_columns + 2 + 36 + 2 + from_columns + 2;
    int columns = VALUE_COLUMNS;
    if (feed_terminal_columns() > 0) columns = feed_terminal_columns() - before;
    if (columns < VALUE_COLUMNS_MIN) columns = VALUE_COLUMNS_MIN;
    buf_addf(&text, "%6s  %-20s  %-*s  %-36s  %-*s  %s\n", "ID", "time", reason_columns, "reason",
             "request", from_columns, "from", "value");
    for (size_t i = 0; i < letters->count; i++) {
        const struct dead_letter *l = &letters->open[i];
        str from = feed_short_from(l);
        char time[CLOCK_TEXT_BYTES] = "?";
        if (clock_writable(l->at_ms) && l->at_ms >= 0) clock_format(l->at_ms, time);
        if (time[0] != '?') snprintf(time + 19, sizeof time - 19, "Z"); /* to the second */
        buf_addf(&text, "%6" PRId64 "  %-20s  %-*s  %-36s  %-*.*s  ", l->id, time, reason_columns,
                 l->reason, l->request_id != NULL ? l->request_id : "-", from_columns,
                 (int)from.len, from.at);
        feed_add_shown(&text, (str){l->value, l->value_len}, columns,
                       l->value_len < l->value_bytes);
        buf_add_char(&text, '\n');
    }
    if (letters->count == 0) buf_clear(&text);
    if (letters->left_out > 0) buf_addf(&text, "and %zu more\n", letters->left_out);
    if (letters->count == 0)
        buf_add(&text, STR("no open dead letters\n"));
    else
        buf_add(&text,
                STR("\n'admitone feed dlq retry ID' gives a message to the nodes again, 'dlq "
                    "drop ID' gives it up\n"));
    cli_print(&text);
    buf_deinit(&text);
}

static int feed_list(struct feed_command *c, struct feed_admin *a) {
    struct dead_letters letters;
    if (!feed_admin_list(a, &letters, &c->why)) return 2;
    if (c->is_json)
        feed_list_json(&letters);
    else
        feed_list_table(&letters);
    dead_letters_clear(&letters);
    return 0;
}

/* ---- retry and drop ---- */

struct feed_acts {
    bool drops;
    int64_t handled;
    int64_t refused;
};

static void feed_on_handled(void *to, int64_t id, enum dead_letter_end end) {
    struct feed_acts *acts = to;
    long long number = (long long)id;
    bool is_done = end == DEAD_LETTER_PRODUCED || end == DEAD_LETTER_MARKED;
    acts->handled += is_done;
    acts->refused += !is_done;
    if (end == DEAD_LETTER_PRODUCED && !acts->drops)
        printf("dead letter %lld: the nodes get it again\n", number);
    else if (end == DEAD_LETTER_PRODUCED)
        printf("dead letter %lld: dropped; its request fails with request_dropped\n", number);
    else if (end == DEAD_LETTER_MARKED)
        printf("dead letter %lld: dropped; it is not a request, so there is nothing to decide\n",
               number);
    else if (end == DEAD_LETTER_WAS_CLOSED)
        fprintf(stderr, "admitone: dead letter %lld was handled already\n", number);
    else
        fprintf(stderr,
                "admitone: there is no dead letter %lld; 'admitone feed dlq list' shows the open "
                "ones\n",
                number);
    fflush(stdout);
}

static int feed_handle(struct feed_command *c, struct feed_admin *a, int64_t id, bool drops) {
    struct feed_acts acts = {.drops = drops};
    struct dead_letter_handling h = {
        .id = id, .drops = drops, .done = feed_on_handled, .to = &acts};
    bool ok = feed_admin_handle(a, &h, &c->why);
    if (h.note.len > 0) fprintf(stderr, "admitone: warning: %.*s\n", (int)h.note.len, h.note.bytes);
    buf_deinit(&h.note);
    if (ok && acts.handled + acts.refused == 0) puts("no open dead letters");
    return !ok ? 2 : acts.refused > 0 ? 1 : 0;
}

/* ---- the command ---- */

enum feed_verb { FEED_VERB_STATUS, FEED_VERB_LIST, FEED_VERB_RETRY, FEED_VERB_DROP };

static bool feed_parse_id(struct feed_command *c, const char *word, int64_t *id) {
    if (word == NULL || word[0] == '-')
        return feed_usage(c, "the ID of a dead letter is missing", NULL);
    *id = DEAD_LETTERS_ALL;
    if (strcmp(word, "all") == 0) return true;
    if (str_to_i64(str_of(word), id) && *id >= 0) return true;
    return feed_usage(c, "the ID of a dead letter is a number, not", word);
}

/* The words before the settings. `*args` is moved behind them. */
static bool feed_parse(struct feed_command *c, char ***args, enum feed_verb *verb, int64_t *id) {
    static const char *const verbs[] = {"list", "retry", "drop"};
    char **at = *args;
    if (*at == NULL || **at == '-')
        return feed_usage(c, "feed: it needs a word: status or dlq", NULL);
    bool is_dlq = strcmp(*at, "dlq") == 0;
    if (!is_dlq && strcmp(*at, "status") != 0) return feed_usage(c, "feed: unknown word", *at);
    at++;
    *verb = FEED_VERB_STATUS;
    if (is_dlq) {
        if (*at == NULL || **at == '-')
            return feed_usage(c, "feed dlq: it needs a word: list, retry or drop", NULL);
        for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
            if (strcmp(*at, verbs[i]) == 0) *verb = (enum feed_verb)(FEED_VERB_LIST + i);
        if (*verb == FEED_VERB_STATUS) return feed_usage(c, "feed dlq: unknown word", *at);
        at++;
    }
    if (*verb == FEED_VERB_RETRY || *verb == FEED_VERB_DROP) {
        if (!feed_parse_id(c, *at, id)) return false;
        at++;
    }
    *args = at;
    bool is_all = *id == DEAD_LETTERS_ALL;
    if (*verb == FEED_VERB_DROP && is_all && !c->is_sure) {
        buf_add(&c->why,
                STR("feed dlq drop all: the requests of all open dead letters fail, which "
                    "cannot be undone. Look at 'admitone feed dlq list' first, then repeat "
                    "this with --yes"));
        return false;
    }
    return true;
}

static int feed_run(struct feed_command *c, enum feed_verb verb, int64_t id) {
    bool is_kafka = settings_uses_kafka(&c->settings);
    if (!is_kafka && verb == FEED_VERB_STATUS) return feed_local_status(c);
    if (!is_kafka) {
        buf_add(&c->why, STR("only a feed in Kafka has dead letters: with the local feed every "
                             "request stays in the ledger until it is decided. If the nodes use "
                             "Kafka, give their --feed kafka://HOST:PORT"));
        return 2;
    }
    struct feed_admin *a = c->adapters->open_feed_admin(&c->settings, &c->why);
    if (a == NULL) return 2;
    int status = verb == FEED_VERB_STATUS ? feed_kafka_status(c, a)
                 : verb == FEED_VERB_LIST ? feed_list(c, a)
                                          : feed_handle(c, a, id, verb == FEED_VERB_DROP);
    feed_admin_close(a);
    return status;
}

int cli_feed(char *const *args, const struct adapters *adapters) {
    struct feed_command c = {.adapters = adapters};
    char **own_args = cli_copy_args(args);
    char **rest = own_args;
    enum feed_verb verb = FEED_VERB_STATUS;
    int64_t id = 0;
    int status = 2;
    c.is_json = cli_take_word(own_args, "--json");
    c.is_sure = cli_take_word(own_args, "--yes");
    if (feed_parse(&c, &rest, &verb, &id) && cli_settings(&c.config, &c.settings, rest)) {
        cli_warn(&c.config, cli_print_warning);
        /* What is found goes into the report; the log shows only errors. */
        log_setup(LOG_ERROR, LOG_LOGFMT);
        status = feed_run(&c, verb, id);
    }
    if (c.why.len > 0) cli_complain(&c.why);
    config_deinit(&c.config);
    buf_deinit(&c.why);
    mem_free(own_args);
    return status;
}
