/*
 * catalogue: the events as they are in force now, in memory, for requests. Loaded from the ledger
 * at start, and changed after its commits, before they are answered. The highest version of a name
 * wins, in whichever order changes arrive; so a removal is kept with its version for some minutes.
 *
 * Reading: between catalogue_read_lock and catalogue_read_unlock, on one thread, events do not
 * change. Keep it short: changes wait in the meantime.
 */
#ifndef ADMITONE_SERVICE_CATALOGUE_H
#define ADMITONE_SERVICE_CATALOGUE_H

#include "core/event.h"

struct catalogue;

struct catalogue *catalogue_new(void);
void catalogue_free(struct catalogue *c);

void catalogue_read_lock(struct catalogue *c);
void catalogue_read_unlock(struct catalogue *c);
/* NULL: there is none. */
const struct event *catalogue_find(struct catalogue *c, str type, str id);
/* By the ledger's number for it. */
const struct event *catalogue_find_key(struct catalogue *c, int64_t key);
/* The event that has the section, by the ledger's number for that. */
const struct event *catalogue_find_section(struct catalogue *c, int64_t section_key,
                                           const struct section **section);
/* Events are numbered from 0 in the order of type and id. catalogue_after returns the number of
 * the first event after the name, catalogue_at the event with a number (NULL: there are no more).
 */
size_t catalogue_after(struct catalogue *c, str type, str id);
const struct event *catalogue_at(struct catalogue *c, size_t number);

/* Takes ownership of the event, which replaces an older one of the same name. If it is not newer
 * than the event in the catalogue, or than its removal, it is freed. */
void catalogue_install(struct catalogue *c, struct event *e);
/* Removes the event, unless the catalogue has a newer version of it. */
void catalogue_remove(struct catalogue *c, str type, str id, int64_t version);
size_t catalogue_count(struct catalogue *c);
/* How many removals are kept: those of the last minutes, for older changes may arrive late. */
size_t catalogue_removals(struct catalogue *c);

#endif
