/*
 * hold_expiry: ends holds whose time is over. The hot store says which ones are due, the ledger
 * decides, and the hot store follows. reservations_is_busy says whether any of it is under way.
 */
#ifndef ADMITONE_SERVICE_HOLD_EXPIRY_H
#define ADMITONE_SERVICE_HOLD_EXPIRY_H

#include "service/reservations.h"

/* Ends the due holds of one event. At every tick, on a worker. */
void hold_expiry_tick(struct reservations *r, int64_t event_key);

#endif
