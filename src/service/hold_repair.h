/*
 * hold_repair: the hot store gave seats that the ledger then refused, so the two stores differ.
 * This corrects the hot store for these seats. It runs on the worker of the hold.
 */
#ifndef ADMITONE_SERVICE_HOLD_REPAIR_H
#define ADMITONE_SERVICE_HOLD_REPAIR_H

#include "service/hold.h"

/* For the seats of h->refused that the ledger's record refused; the list is overwritten. `done` is
 * called with OK or the ledger's failure: later, or before the function returns. */
void hold_repair(struct hold *h, void (*done)(struct hold *h, enum err result));

#endif
