/*
 * fact: something that happened to a reservation (HELD, CONFIRMED, CANCELLED, EXPIRED), or that an
 * event had no seat left (SOLD_OUT). Pure data; no I/O, no clock.
 *
 * Facts are read from the ledger in the order of their marks, which is the order of sales
 * (core/sale.h): nothing appears later before a mark that was read, and the facts of a reservation
 * come in the order in which they happened.
 */
#ifndef ADMITONE_CORE_FACT_H
#define ADMITONE_CORE_FACT_H

#include "core/reservation.h"
#include "core/sale.h"

/* X(symbol): the words of JSON, SQL and the docs. */
#define FACT_KIND_MAP(X) X(HELD) X(CONFIRMED) X(CANCELLED) X(EXPIRED) X(SOLD_OUT)

enum fact_kind {
#define FACT_KIND_ENUM(symbol) FACT_##symbol,
    FACT_KIND_MAP(FACT_KIND_ENUM)
#undef FACT_KIND_ENUM
};

/* Ends with an entry whose `at` is NULL (word_index of core/event.h). */
extern const str fact_kind_words[];

struct fact {
    struct sale_mark mark; /* mark.id is the fact's id */
    enum fact_kind kind;
    int64_t at_ms;
    /* Empty where retention has removed the event or the section. */
    char event_type[EVENT_TYPE_BYTES_MAX + 1];
    char event_id[EVENT_ID_BYTES_MAX + 1];
    char section[SECTION_ID_BYTES_MAX + 1]; /* empty for SOLD_OUT, too */

    /* Of the reservation; not set for SOLD_OUT. */
    struct uuid reservation;
    char user[USER_ID_BYTES_MAX + 1];
    uint32_t seat_count;
    uint32_t *seats;  /* so many, ascending, behind the struct; NULL: not known */
    int64_t price;    /* of all its seats, in the currency's minor unit */
    char currency[4]; /* empty: the price is not known */
};

/* With room for that many seats (0: none are known); mem_free frees it. */
struct fact *fact_new(uint32_t known_seats);

/* A mark as a text that clients send back, such as "731-42". */
#define FACT_CURSOR_BYTES 48
str fact_cursor_format(const struct sale_mark *mark, char out[FACT_CURSOR_BYTES]);
/* False: it is not a text that fact_cursor_format makes. */
bool fact_cursor_parse(str text, struct sale_mark *out);

#endif
