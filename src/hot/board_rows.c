/* Makes the rows of boards (board_rows.h). */
#include "hot/board_rows.h"

struct board_row board_row_of_sales(size_t rank, const struct board_sales *t) {
    return (struct board_row){.rank = rank,
                              .sales = {.event_key = t->event_key,
                                        .reservations = t->reservations,
                                        .seats = t->seats,
                                        .since_ms = t->since_ms}};
}

struct board_row board_row_of_soldout(size_t rank, const struct soldout_sales *s) {
    return (struct board_row){.rank = rank, .is_sold_out = soldout_is_sold_out(s), .sales = *s};
}

struct board_row board_row_of_day(size_t rank, const struct soldout_sales *s,
                                  const struct board_sales *t) {
    struct board_row row = board_row_of_soldout(rank, s);
    row.sales.reservations = t->reservations;
    row.sales.seats = t->seats;
    return row;
}

static bool board_rows_contain(const struct board_row *rows, size_t count, int64_t event_key) {
    for (size_t i = 0; i < count; i++)
        if (rows[i].sales.event_key == event_key) return true;
    return false;
}

size_t board_rows_append(struct board_row *rows, size_t count, size_t max,
                         const struct board_row *others, size_t other_count) {
    size_t first = count;
    for (size_t i = 0; i < other_count && count < max; i++) {
        if (board_rows_contain(rows, first, others[i].sales.event_key)) continue;
        rows[count] = others[i];
        rows[count].rank = count + 1;
        count++;
    }
    return count;
}
