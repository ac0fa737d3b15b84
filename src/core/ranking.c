/* The B+tree of a ranking. */
#include "core/ranking.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* A node with this many keys is split at once, so there is always room for one more. */
#define KEYS_MAX 64
/* One that has lost half of its keys joins a neighbour, if both together have no more than this:
 * then the next split is far away. */
#define KEYS_JOINED (KEYS_MAX * 3 / 4)
#define CACHE_LINE 64

/* No key is in front of it: that of the first node on its level. */
static const struct ranked first_of_all = {INT64_MIN, INT64_MAX, INT64_MIN};

/* A leaf, or the front of a branch. */
struct ranking_node {
    uint32_t count;
    uint32_t level; /* 0: a leaf */
    /* A leaf's members in order. In a branch: no member below a child is in front of its key, and
     * all members below the child before it are. */
    struct ranked keys[KEYS_MAX];
};

struct branch {
    struct ranking_node node;
    struct ranking_node *children[KEYS_MAX];
    uint32_t sizes[KEYS_MAX]; /* how many members are below each */
};
static_assert(offsetof(struct branch, node) == 0, "a branch begins as a node");

static struct branch *branch_of(struct ranking_node *n) {
    assert(n->level > 0);
    return (struct branch *)n;
}

static const struct branch *branch_look(const struct ranking_node *n) {
    assert(n->level > 0);
    return (const struct branch *)n;
}

static struct ranking_node *node_new(uint32_t level) {
    struct ranking_node *n = mem_new(level == 0 ? sizeof *n : sizeof(struct branch));
    n->level = level;
    return n;
}

static void node_free(struct ranking_node *n) {
    if (n->level > 0)
        for (uint32_t i = 0; i < n->count; i++) node_free(branch_of(n)->children[i]);
    mem_free(n);
}

/* Without a branch of the code: which of two is in front is as good as random. */
static inline bool in_front(const struct ranked *a, const struct ranked *b) {
    bool member = a->member < b->member;
    bool since = (a->since < b->since) | ((a->since == b->since) & member);
    return (a->score > b->score) | ((a->score == b->score) & since);
}

/* How many keys of the node are not behind this one. */
static uint32_t node_reach(const struct ranking_node *n, const struct ranked *key) {
    uint32_t at = 0;
    uint32_t half;
    for (uint32_t left = n->count; left > 0; left -= half) {
        half = (left + 1) / 2;
        at += in_front(key, &n->keys[at + half - 1]) ? 0 : half;
    }
    return at;
}

/* The last key that is not behind this one, of which there is one: in a branch, that of the child
 * below which this one is or would be; in a leaf, the member itself. */
static uint32_t node_place_of(const struct ranking_node *n, const struct ranked *key) {
    uint32_t keys = node_reach(n, key);
    assert(keys > 0);
    return keys - 1;
}

/* Copies keys and all that goes with them between nodes of one level, or inside of one. */
static void node_copy(struct ranking_node *to, uint32_t to_at, struct ranking_node *from,
                      uint32_t from_at, uint32_t count) {
    assert(to->level == from->level && to_at + count <= KEYS_MAX && from_at + count <= KEYS_MAX);
    memmove(to->keys + to_at, from->keys + from_at, count * sizeof *to->keys);
    if (to->level == 0) return;
    struct branch *t = branch_of(to);
    struct branch *f = branch_of(from);
    memmove(t->children + to_at, f->children + from_at, count * sizeof *t->children);
    memmove(t->sizes + to_at, f->sizes + from_at, count * sizeof *t->sizes);
}

static void node_insert(struct ranking_node *n, uint32_t at, const struct ranked *key) {
    assert(at <= n->count && n->count < KEYS_MAX);
    node_copy(n, at + 1, n, at, n->count - at);
    n->keys[at] = *key;
    n->count++;
}

static void node_erase(struct ranking_node *n, uint32_t at) {
    assert(at < n->count);
    node_copy(n, at, n, at + 1, n->count - at - 1);
    n->count--;
}

/* How many members are below the first children. */
static uint32_t branch_size(const struct branch *b, uint32_t children) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < children; i++) sum += b->sizes[i];
    return sum;
}

/* The second half of a child becomes a new child. */
static void branch_split(struct branch *b, uint32_t at) {
    struct ranking_node *left = b->children[at];
    struct ranking_node *right = node_new(left->level);
    right->count = left->count / 2;
    left->count -= right->count;
    node_copy(right, 0, left, left->count, right->count);
    uint32_t size = right->level == 0 ? right->count : branch_size(branch_of(right), right->count);
    node_insert(&b->node, at + 1, &right->keys[0]);
    b->children[at + 1] = right;
    b->sizes[at + 1] = size;
    b->sizes[at] -= size;
}

/* The next child becomes part of this one. Its first key is the one that the branch has for it. */
static void branch_join(struct branch *b, uint32_t at) {
    struct ranking_node *left = b->children[at];
    struct ranking_node *right = b->children[at + 1];
    node_copy(left, left->count, right, 0, right->count);
    left->count += right->count;
    b->sizes[at] += b->sizes[at + 1];
    node_erase(&b->node, at + 1);
    mem_free(right);
}

static bool branch_may_join(const struct branch *b, uint32_t at) {
    return at + 1 < b->node.count &&
           b->children[at]->count + b->children[at + 1]->count <= KEYS_JOINED;
}

/* After a change below a child: there is room in it, and it is not too small. */
static void branch_repair(struct branch *b, uint32_t at) {
    uint32_t count = b->children[at]->count;
    if (count == KEYS_MAX) {
        branch_split(b, at);
    } else if (count <= KEYS_MAX / 2) {
        if (branch_may_join(b, at)) branch_join(b, at);
        if (at > 0 && branch_may_join(b, at - 1)) branch_join(b, at - 1);
    }
}

/* Fetches all of a node at once, and not one line of the cache after the other as it is searched:
 * in a large ranking that is most of the time. */
static struct ranking_node *node_fetch(struct ranking_node *n) {
    for (size_t i = 0; i < sizeof *n; i += CACHE_LINE) __builtin_prefetch((const char *)n + i);
    return n;
}

/* Not there yet. */
static void node_put(struct ranking_node *n, const struct ranked *key) {
    if (n->level == 0) {
        node_insert(n, node_reach(n, key), key);
        return;
    }
    struct branch *b = branch_of(n);
    uint32_t at = node_place_of(n, key);
    node_put(node_fetch(b->children[at]), key);
    b->sizes[at]++;
    branch_repair(b, at);
}

/* There. */
static void node_take(struct ranking_node *n, const struct ranked *key) {
    uint32_t at = node_place_of(n, key);
    if (n->level == 0) {
        assert(n->keys[at].member == key->member);
        node_erase(n, at);
        return;
    }
    struct branch *b = branch_of(n);
    node_take(node_fetch(b->children[at]), key);
    b->sizes[at]--;
    branch_repair(b, at);
}

static void node_move(struct ranking_node *n, const struct ranked *from, const struct ranked *to) {
    uint32_t at = node_place_of(n, from);
    if (n->level == 0 || node_place_of(n, to) != at) {
        node_take(n, from);
        node_put(n, to);
        return;
    }
    struct branch *b = branch_of(n);
    node_move(node_fetch(b->children[at]), from, to);
    branch_repair(b, at);
}

/* The root has no neighbour: a full one gets a branch above it, and a branch with one child goes.
 */
static void ranking_repair_root(struct ranking *r) {
    struct ranking_node *root = r->root;
    if (root->count == KEYS_MAX) {
        r->root = node_new(root->level + 1);
        struct branch *b = branch_of(r->root);
        node_insert(&b->node, 0, &first_of_all);
        b->children[0] = root;
        b->sizes[0] = (uint32_t)r->count;
        branch_split(b, 0);
    } else if (root->level > 0 && root->count == 1) {
        r->root = branch_of(root)->children[0];
        mem_free(root);
    }
}

void ranking_init(struct ranking *r) {
    *r = (struct ranking){.root = node_new(0)};
}

void ranking_deinit(struct ranking *r) {
    node_free(r->root);
    *r = (struct ranking){0};
}

void ranking_set(struct ranking *r, struct ranked *at, struct ranked to) {
    assert(to.member != 0 && r->count < UINT32_MAX);
    if (at->member != 0) {
        assert(at->member == to.member);
        node_move(r->root, at, &to);
    } else {
        node_put(r->root, &to);
        r->count++;
    }
    *at = to;
    ranking_repair_root(r);
}

void ranking_remove(struct ranking *r, struct ranked *at) {
    if (at->member == 0) return;
    node_take(r->root, at);
    r->count--;
    *at = (struct ranked){0};
    ranking_repair_root(r);
}

size_t ranking_rank(const struct ranking *r, const struct ranked *at) {
    if (at->member == 0) return 0;
    size_t in_front = 0;
    const struct ranking_node *n = r->root;
    while (n->level > 0) {
        uint32_t child = node_place_of(n, at);
        in_front += branch_size(branch_look(n), child);
        n = branch_look(n)->children[child];
    }
    return in_front + node_reach(n, at);
}

static size_t node_list(const struct ranking_node *n, struct ranked *out, size_t max) {
    size_t got = 0;
    if (n->level == 0) {
        got = n->count < max ? n->count : max;
        if (got > 0) memcpy(out, n->keys, got * sizeof *out);
        return got;
    }
    const struct branch *b = branch_look(n);
    for (uint32_t i = 0; i < n->count && got < max; i++)
        got += node_list(b->children[i], out + got, max - got);
    return got;
}

size_t ranking_top(const struct ranking *r, struct ranked *out, size_t max) {
    return node_list(r->root, out, max);
}
