/* The words, memory and cursors of facts. */
#include "core/fact.h"

#include <stdio.h>

#include "base/mem.h"

const str fact_kind_words[] = {
#define FACT_KIND_WORD(symbol) STR_INIT(#symbol),
    FACT_KIND_MAP(FACT_KIND_WORD)
#undef FACT_KIND_WORD
        {NULL, 0},
};

struct fact *fact_new(uint32_t known_seats) {
    struct fact *f = mem_new(sizeof *f + known_seats * sizeof *f->seats);
    f->seats = known_seats > 0 ? (uint32_t *)(f + 1) : NULL;
    f->seat_count = known_seats;
    return f;
}

str fact_cursor_format(const struct sale_mark *mark, char out[FACT_CURSOR_BYTES]) {
    int len = snprintf(out, FACT_CURSOR_BYTES, "%lld-%lld", (long long)mark->transaction,
                       (long long)mark->id);
    return (str){out, (size_t)len};
}

/* What it formats again must be the same text: no sign, no leading zero. */
bool fact_cursor_parse(str text, struct sale_mark *out) {
    str rest = text;
    str first;
    int64_t transaction = 0;
    int64_t id = 0;
    bool is_ok = str_split(&rest, '-', &first) && rest.at != NULL &&
                 str_to_i64(first, &transaction) && str_to_i64(rest, &id) && transaction >= 0 &&
                 id >= 0;
    *out = (struct sale_mark){.transaction = (uint64_t)transaction, .id = id};
    if (!is_ok) return false;
    char again[FACT_CURSOR_BYTES];
    return str_eq(fact_cursor_format(out, again), text);
}
