/*
 * memory_boards: port/boards.h in this process: the rules of core/board.h and core/soldout.h under
 * one mutex, which is held briefly. Safe from any thread.
 */
#ifndef ADMITONE_HOT_MEMORY_BOARDS_H
#define ADMITONE_HOT_MEMORY_BOARDS_H

#include "core/board.h"
#include "port/boards.h"

struct memory_boards;

struct memory_boards *memory_boards_new(void);
void memory_boards_free(struct memory_boards *m);

struct boards *memory_boards_port(struct memory_boards *m);

/* Called with all rows of all boards: first the boards of periods, one after the other, then the
 * board of all time. */
struct memory_boards_reader {
    void (*on_board_sales)(void *to, const struct period *p, const struct span *s,
                           const struct board_sales *t);
    void (*on_board_end)(void *to);
    void (*on_soldout_sales)(void *to, const struct soldout_row *r);
    void *to;
};

void memory_boards_read(struct memory_boards *m, const struct memory_boards_reader *r);

#endif
