/* Reads the file of named keys, and looks every second whether it has changed. */
#include "cli/keys_file.h"

#include <errno.h>

#include "base/log.h"
#include "cli/data_folder.h"

#define FILE_BYTES_MAX 65536
#define LOOK_EVERY_MS 1000

void keys_file_path(const struct settings *set, struct buf *out) {
    if (set->keys_file[0] != '\0')
        buf_add(out, str_of(set->keys_file));
    else
        buf_addf(out, "%s/keys", set->data);
}

bool keys_file_read(const char *path, bool required, struct key_ring *ring, struct buf *text,
                    struct stat *about, struct buf *why) {
    struct buf reason = {0};
    *ring = (struct key_ring){0};
    *about = (struct stat){0};
    if (!required && stat(path, about) != 0 && errno == ENOENT) {
        *about = (struct stat){0};
        return true;
    }
    if (!secret_file_read(path, FILE_BYTES_MAX, text, about, why)) return false;
    bool ok = key_ring_parse(buf_str(text), ring, &reason);
    if (!ok) buf_addf(why, "the keys file %s, %.*s", path, (int)reason.len, reason.bytes);
    buf_deinit(&reason);
    return ok;
}

/* A reader of the file `secret`, say, must not have a key of the admin API with it. */
static bool keys_file_is_separate(const struct keys_file *f, const struct key_ring *ring,
                                  struct buf *why) {
    for (size_t i = 0; i < ring->count; i++) {
        const struct key *same = key_ring_find(&f->server_keys, ring->keys[i].digest);
        if (same == NULL) continue;
        buf_addf(why,
                 "the key \"%s\" of the keys file %s and %s have the same key; each needs one that "
                 "is used for nothing else",
                 ring->keys[i].name, f->path.bytes, same->name);
        return false;
    }
    return true;
}

bool keys_file_open(struct keys_file *f, const struct settings *set, struct keys *keys,
                    struct buf *why) {
    struct buf text = {0};
    f->keys = keys;
    keys_file_path(set, &f->path);
    bool is_set = set->keys_file[0] != '\0';
    bool ok = keys_file_read(buf_cstr(&f->path), is_set, &f->ring, &text, &f->seen, why) &&
              keys_file_is_separate(f, &f->ring, why);
    if (ok) keys_set(keys, &f->ring);
    buf_deinit(&text);
    return ok;
}

/* ---- changes ---- */

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mode == b->st_mode && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void log_change(const char *what, const struct key *key) {
    log_info(msg(what), kv("name", key->name), kv_str("role", key_role_words[key->role]));
}

static bool is_same_key(const struct key *a, const struct key *b) {
    return a->role == b->role && memcmp(a->digest, b->digest, sizeof a->digest) == 0;
}

static void log_changes(const struct key_ring *before, const struct key_ring *after) {
    for (size_t i = 0; i < before->count; i++)
        if (key_ring_named(after, str_of(before->keys[i].name)) == NULL)
            log_change("key removed", &before->keys[i]);
    for (size_t i = 0; i < after->count; i++) {
        const struct key *old = key_ring_named(before, str_of(after->keys[i].name));
        if (old == NULL)
            log_change("key added", &after->keys[i]);
        else if (!is_same_key(old, &after->keys[i]))
            log_change("key replaced", &after->keys[i]);
    }
}

static void keys_file_reload(struct keys_file *f) {
    struct buf text = {0};
    struct buf why = {0};
    struct key_ring ring;
    struct stat about;
    if (keys_file_read(buf_cstr(&f->path), true, &ring, &text, &about, &why) &&
        keys_file_is_separate(f, &ring, &why)) {
        log_changes(&f->ring, &ring);
        f->ring = ring;
        keys_set(f->keys, &ring);
    } else {
        log_warn(msg("the changed keys file cannot be used; the keys that were read before stay in "
                     "force"),
                 kv_str("reason", buf_str(&why)));
    }
    buf_deinit(&text);
    buf_deinit(&why);
}

static void keys_file_on_timer(uv_timer_t *timer) {
    struct keys_file *f = timer->data;
    struct stat now;
    if (stat(buf_cstr(&f->path), &now) != 0) now = (struct stat){0};
    if (is_same_file(&now, &f->seen)) return;
    f->seen = now;
    keys_file_reload(f);
}

void keys_file_follow(struct keys_file *f, uv_loop_t *loop) {
    uv_timer_init(loop, &f->timer);
    f->timer.data = f;
    uv_timer_start(&f->timer, keys_file_on_timer, LOOK_EVERY_MS, LOOK_EVERY_MS);
}

void keys_file_stop(struct keys_file *f) {
    uv_close((uv_handle_t *)&f->timer, NULL);
}

void keys_file_deinit(struct keys_file *f) {
    buf_deinit(&f->path);
}
