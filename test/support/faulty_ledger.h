/*
 * faulty_ledger: a ledger in front of a real one. Some of its next records fail as on a broken
 * disk: they are accepted, and handed back with an error. Or it accepts none. One thread.
 */
#ifndef ADMITONE_TEST_FAULTY_LEDGER_H
#define ADMITONE_TEST_FAULTY_LEDGER_H

#include "port/ledger.h"

struct faulty_ledger {
    struct ledger ledger;
    struct ledger *real;
    int fails;     /* how many of the next submitted records fail */
    int asks_fail; /* likewise, of those that are asked */
    enum err why;  /* ERR_LEDGER_FAILED, unless it is set */
    bool is_full;  /* neither is taken: ERR_OVERLOADED */
    /* The next LEDGER_END is executed while the answer to the next LEDGER_RESERVATION_GET is on its
     * way, and is answered first. */
    bool is_late;

    /* Below: its own. */
    struct ledger_record *end;
    struct ledger_record *get;
    void (*end_run)(struct task *task);
    void (*get_run)(struct task *task);
};

void faulty_ledger_init(struct faulty_ledger *f, struct ledger *real, int fails);

#endif
