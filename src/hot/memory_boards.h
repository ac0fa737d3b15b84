/*
 * memory_boards: port/boards.h in this process: the law of core/board.h and core/soldout.h under
 * one mutex, which whoever counts takes for a moment. Safe from any thread.
 */
#ifndef ADMITONE_HOT_MEMORY_BOARDS_H
#define ADMITONE_HOT_MEMORY_BOARDS_H

#include "port/boards.h"

struct memory_boards;

struct memory_boards *memory_boards_new(void);
void memory_boards_free(struct memory_boards *m);

struct boards *memory_boards_port(struct memory_boards *m);

#endif
