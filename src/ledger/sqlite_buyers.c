/*
 * How many seats each user has in each event, in the memory of the writer thread. The sums are not
 * stored in a table: its key would be the user, in random order, so that every hold would write
 * another page (docs/decisions/0019). They are counted from the rows of the reservations at the
 * start. The only writer changes them together with these rows, so they are exact.
 */
#include <assert.h>

#include "base/mem.h"
#include "ledger/sqlite_internal.h"

struct buyer {
    struct buyer_seats has;
    size_t unsettled; /* changes of the open transaction */
    size_t key_len;
    char key[];
};

struct buyer_change {
    struct buyer *buyer;
    struct buyer_seats by;
};

struct key {
    char bytes[sizeof(int64_t) + USER_ID_BYTES_MAX];
    size_t len;
};

static struct key buyers_key(int64_t event_key, str user) {
    struct key k = {.len = sizeof event_key + user.len};
    assert(k.len <= sizeof k.bytes);
    memcpy(k.bytes, &event_key, sizeof event_key);
    memcpy(k.bytes + sizeof event_key, user.at, user.len);
    return k;
}

static struct buyer *buyers_add(struct buyers *b, const struct key *k) {
    struct buyer *buyer = mem_new(sizeof *buyer + k->len);
    buyer->key_len = k->len;
    memcpy(buyer->key, k->bytes, k->len);
    map_put(&b->all, (str){k->bytes, k->len}, buyer);
    return buyer;
}

static void buyers_remove(struct buyers *b, struct buyer *buyer) {
    map_remove(&b->all, (str){buyer->key, buyer->key_len});
    mem_free(buyer);
}

void buyers_init(struct buyers *b) {
    *b = (struct buyers){0};
    map_init(&b->all);
}

void buyers_deinit(struct buyers *b) {
    size_t at = 0;
    struct buyer *buyer = NULL;
    while ((buyer = map_next(&b->all, &at)) != NULL) mem_free(buyer);
    map_deinit(&b->all);
    mem_free(b->changes);
}

struct buyer_seats buyers_count(const struct buyers *b, int64_t event_key, str user) {
    struct key k = buyers_key(event_key, user);
    const struct buyer *buyer = map_get(&b->all, (str){k.bytes, k.len});
    return buyer == NULL ? (struct buyer_seats){0} : buyer->has;
}

static void buyers_note(struct buyers *b, struct buyer *buyer, struct buyer_seats by) {
    b->changes = mem_make_room(b->changes, b->change_count, &b->change_cap, sizeof *b->changes);
    b->changes[b->change_count++] = (struct buyer_change){buyer, by};
    buyer->unsettled++;
}

int buyers_change(struct buyers *b, int64_t event_key, str user, struct buyer_seats by) {
    struct key k = buyers_key(event_key, user);
    struct buyer *buyer = map_get(&b->all, (str){k.bytes, k.len});
    struct buyer_seats will = by;
    if (buyer != NULL) {
        will.live += buyer->has.live;
        will.held += buyer->has.held;
    }
    if (will.held < 0 || will.held > will.live) return SQLITE_CORRUPT;
    if (buyer == NULL) buyer = buyers_add(b, &k);
    buyer->has = will;
    buyers_note(b, buyer, by);
    return SQLITE_OK;
}

/* A user without seats is removed when none of the remaining changes refers to them. */
static void buyers_settle(struct buyers *b, bool undo) {
    for (size_t i = 0; i < b->change_count; i++) {
        struct buyer *buyer = b->changes[i].buyer;
        if (undo) {
            buyer->has.live -= b->changes[i].by.live;
            buyer->has.held -= b->changes[i].by.held;
        }
        buyer->unsettled--;
        if (buyer->unsettled == 0 && buyer->has.live == 0) buyers_remove(b, buyer);
    }
    b->change_count = 0;
}

void buyers_commit(struct buyers *b) {
    buyers_settle(b, false);
}

void buyers_rollback(struct buyers *b) {
    buyers_settle(b, true);
}

/* A row with values out of range is reported as corrupt. */
static int count_row(struct buyers *b, sqlite3_stmt *rows) {
    str user = column_str(rows, 1);
    int64_t seats = sqlite3_column_int64(rows, 2);
    bool held = sqlite3_column_int(rows, 3) != 0;
    if (user.len > USER_ID_BYTES_MAX || seats < 1 || seats > RESERVATION_SEATS_MAX)
        return SQLITE_CORRUPT;
    return buyers_change(b, sqlite3_column_int64(rows, 0), user,
                         (struct buyer_seats){.live = seats, .held = held ? seats : 0});
}

int buyers_load(struct buyers *b, struct db *db) {
    sqlite3_stmt *rows = NULL;
    int rc = db_query_cells(db, &rows,
                            "SELECT event_id, user_id, seat_count, status = 'HELD'"
                            " FROM reservations WHERE status = 'HELD' OR status = 'CONFIRMED'",
                            NULL, 0);
    while (db_next(rows, &rc)) {
        rc = count_row(b, rows);
        if (rc != SQLITE_OK) break;
        buyers_commit(b);
    }
    if (rows != NULL) sqlite3_reset(rows);
    return rc;
}
