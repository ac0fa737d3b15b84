/* Counts connections in all, and per address under a mutex. */
#include "net/peers.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "base/mem.h"

struct peers {
    _Atomic int64_t total;
    int64_t total_max;
    int64_t per_address_max;
    struct networks exempt;
    pthread_mutex_t lock;
    struct map counts; /* under lock: address → how many, kept in the pointer itself */
};

struct peers *peers_new(int64_t total_max, int64_t per_address_max, const struct networks *exempt) {
    assert(total_max > 0 && per_address_max >= 0);
    struct peers *p = mem_new(sizeof *p);
    p->total_max = total_max;
    p->per_address_max = per_address_max;
    p->exempt = *exempt;
    pthread_mutex_init(&p->lock, NULL);
    map_init(&p->counts);
    return p;
}

void peers_free(struct peers *p) {
    assert(p->total == 0 && p->counts.count == 0);
    map_deinit(&p->counts);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

static str peers_key(const struct address *a) {
    return (str){(const char *)a->bytes, sizeof a->bytes};
}

static bool counts_per_address(const struct peers *p, const struct address *a) {
    return p->per_address_max > 0 && !address_is_loopback(a) && !address_in(a, &p->exempt);
}

enum err peers_enter(struct peers *p, const struct address *a) {
    if (atomic_fetch_add(&p->total, 1) >= p->total_max) {
        atomic_fetch_sub(&p->total, 1);
        return ERR_OVERLOADED;
    }
    if (!counts_per_address(p, a)) return ERR_OK;
    pthread_mutex_lock(&p->lock);
    intptr_t now = (intptr_t)map_get(&p->counts, peers_key(a));
    bool ok = now < p->per_address_max;
    if (ok) map_put(&p->counts, peers_key(a), (void *)(now + 1));
    pthread_mutex_unlock(&p->lock);
    if (!ok) atomic_fetch_sub(&p->total, 1);
    return ok ? ERR_OK : ERR_TOO_MANY_CONNECTIONS;
}

void peers_leave(struct peers *p, const struct address *a) {
    int64_t before = atomic_fetch_sub(&p->total, 1);
    assert(before > 0);
    if (!counts_per_address(p, a)) return;
    pthread_mutex_lock(&p->lock);
    intptr_t now = (intptr_t)map_get(&p->counts, peers_key(a));
    assert(now > 0);
    if (now == 1)
        map_remove(&p->counts, peers_key(a));
    else
        map_put(&p->counts, peers_key(a), (void *)(now - 1));
    pthread_mutex_unlock(&p->lock);
}

int64_t peers_total(const struct peers *p) {
    return atomic_load(&p->total);
}
