/* Reads lists of "value;q=0.5". */
#include "api/accept.h"

#define Q_MAX 1000

struct accept_item {
    str value;
    int q; /* thousandths; 0: not acceptable */
};

/* "0.5" is 500. A weight that is not one counts as 0, so that nothing is sent that the client may
 * have excluded. */
static int parse_q(str text) {
    if (text.len == 0 || text.len > 5 || (text.at[0] != '0' && text.at[0] != '1')) return 0;
    if (text.len > 1 && text.at[1] != '.') return 0;
    int q = (text.at[0] - '0') * Q_MAX;
    int unit = Q_MAX / 10;
    for (size_t i = 2; i < text.len; i++, unit /= 10) {
        if (text.at[i] < '0' || text.at[i] > '9') return 0;
        q += (text.at[i] - '0') * unit;
    }
    return q > Q_MAX ? 0 : q;
}

/* False at the end of the list. */
static bool next_item(str *rest, struct accept_item *out) {
    str item;
    if (!str_split(rest, ',', &item)) return false;
    str params = item;
    str part;
    *out = (struct accept_item){.q = Q_MAX};
    str_split(&params, ';', &part);
    out->value = str_trim(part);
    while (str_split(&params, ';', &part)) {
        part = str_trim(part);
        if (part.len >= 2 && (part.at[0] == 'q' || part.at[0] == 'Q') && part.at[1] == '=')
            out->q = parse_q(str_skip(part, 2));
    }
    return true;
}

bool accept_gzip(str header) {
    int gzip = -1;
    int identity = -1;
    int any = -1;
    struct accept_item item;
    while (header.len > 0 && next_item(&header, &item)) {
        if (str_eq_nocase(item.value, STR("gzip")) || str_eq_nocase(item.value, STR("x-gzip")))
            gzip = item.q;
        else if (str_eq_nocase(item.value, STR("identity")))
            identity = item.q;
        else if (str_eq(item.value, STR("*")))
            any = item.q;
    }
    if (gzip < 0) gzip = any;
    /* Plain bytes that are not named are accepted, but were not asked for. */
    if (identity < 0) identity = any < 0 ? 1 : any;
    return gzip > 0 && gzip >= identity;
}

static bool starts_nocase(str text, str prefix) {
    return text.len >= prefix.len && str_eq_nocase((str){text.at, prefix.len}, prefix);
}

/* The number of the code that a language range finds; `count`: none. */
static size_t find_language(str range, const str *codes, size_t count) {
    str whole = range;
    while (range.len > 0) {
        for (size_t i = 0; i < count; i++)
            if (str_eq_nocase(codes[i], range)) return i;
        while (range.len > 0 && range.at[range.len - 1] != '-') range.len--;
        if (range.len > 0) range.len--;
    }
    for (size_t i = 0; i < count; i++)
        if (whole.len > 0 && codes[i].len > whole.len && codes[i].at[whole.len] == '-' &&
            starts_nocase(codes[i], whole))
            return i;
    return count;
}

static bool excludes_language(str header, const str *codes, size_t count, size_t wanted) {
    struct accept_item item;
    while (header.len > 0 && next_item(&header, &item))
        if (item.q == 0 && find_language(item.value, codes, count) == wanted) return true;
    return false;
}

/* What "*" stands for: the usual language, or another one if the client excludes that. */
static size_t any_language(str header, const str *codes, size_t count, size_t otherwise) {
    if (!excludes_language(header, codes, count, otherwise)) return otherwise;
    for (size_t i = 0; i < count; i++)
        if (!excludes_language(header, codes, count, i)) return i;
    return otherwise;
}

size_t accept_language(str header, const str *codes, size_t count, size_t otherwise) {
    size_t best = otherwise;
    size_t any = count; /* what "*" stands for, found once: it takes a walk through the header */
    int best_q = 0;
    struct accept_item item;
    str rest = header;
    while (rest.len > 0 && next_item(&rest, &item)) {
        if (item.q <= best_q) continue;
        bool is_any = str_eq(item.value, STR("*"));
        if (is_any && any == count) any = any_language(header, codes, count, otherwise);
        size_t found = is_any ? any : find_language(item.value, codes, count);
        if (found == count) continue;
        best = found;
        best_q = item.q;
    }
    return best;
}
