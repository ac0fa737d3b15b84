/*
 * list: a doubly linked ring through a field of its members. Owns nothing. A link that is in no
 * list points to itself, so removing twice is harmless.
 */
#ifndef ADMITONE_BASE_LIST_H
#define ADMITONE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev;
    struct list *next;
};

/* The struct whose field `field` is the link `ptr`. */
#define CONTAINER_OF(ptr, type, field) ((type *)(void *)((char *)(ptr)-offsetof(type, field)))

static inline void list_init(struct list *l) {
    l->prev = l;
    l->next = l;
}

static inline bool list_empty(const struct list *l) {
    return l->next == l;
}

static inline void list_remove(struct list *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* Takes the link out of whatever list it is in, and puts it last in this one. */
static inline void list_move_last(struct list *l, struct list *link) {
    list_remove(link);
    link->prev = l->prev;
    link->next = l;
    l->prev->next = link;
    l->prev = link;
}

/* The same, but first. */
static inline void list_move_first(struct list *l, struct list *link) {
    list_remove(link);
    list_move_last(l->next, link);
}

#endif
