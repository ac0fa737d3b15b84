/*
 * board_ops: the operations of port/boards.h for tests. An operation sets its `done` to NULL when
 * it is done.
 */
#ifndef ADMITONE_TEST_BOARD_OPS_H
#define ADMITONE_TEST_BOARD_OPS_H

#include "port/boards.h"

#define DONE(op_type)                                                                              \
    static inline void op_type##_done(struct op_type *op) {                                        \
        op->done = NULL;                                                                           \
    }
DONE(board_begin_op)
DONE(board_count_op)
DONE(board_events_op)
DONE(board_top_op)
DONE(board_find_op)
#undef DONE

#endif
