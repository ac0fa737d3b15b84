/* The codes, statuses and titles of ERR_MAP. */
#include "base/err.h"

#include <assert.h>

static const struct {
    str code;
    str title;
    int status;
} rows[] = {
#define ERR_ROW(symbol, code, status, title) {STR_INIT(code), STR_INIT(title), status},
    ERR_MAP(ERR_ROW)
#undef ERR_ROW
};

static size_t row(enum err e) {
    assert((size_t)e < sizeof rows / sizeof rows[0]);
    return (size_t)e;
}

str err_code(enum err e) {
    return rows[row(e)].code;
}

enum err err_of_code(str code) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_eq(rows[i].code, code)) return (enum err)i;
    return ERR_INTERNAL;
}

int err_status(enum err e) {
    return rows[row(e)].status;
}

str err_title(enum err e) {
    return rows[row(e)].title;
}

const char *err_effect(enum err e) {
    bool is_unknown = e == ERR_LEDGER_UNKNOWN || e == ERR_HOT_UNKNOWN || e == ERR_FEED_UNKNOWN;
    return is_unknown ? "The request may have taken effect. Send it again."
                      : "Nothing was changed.";
}
