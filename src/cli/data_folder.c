/* The data folder, its lock, and the key files in it. */
#include "cli/data_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_BYTES 32
/* Whatever is shorter could be guessed. */
#define KEY_TEXT_BYTES_MIN 16
#define KEY_TEXT_BYTES_MAX 4096
#define WHITE " \t\r\n"

static bool data_folder_fail(struct buf *why, const char *what, const char *path) {
    buf_addf(why, "%s %s: %s", what, path, strerror(errno));
    return false;
}

bool data_folder_make(const char *path, struct buf *why) {
    struct buf part = {0};
    bool ok = true;
    str rest = str_of(path);
    str name;
    while (ok && str_split(&rest, '/', &name)) {
        if (part.len > 0 || name.len == 0) buf_add_char(&part, '/');
        buf_add(&part, name);
        if (name.len == 0) continue;
        if (mkdir(buf_cstr(&part), 0700) != 0 && errno != EEXIST)
            ok = data_folder_fail(why, "cannot make the data folder", path);
    }
    buf_deinit(&part);
    return ok;
}

bool lock_take(const char *path, const char *what, int *lock, struct buf *why) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return data_folder_fail(why, "cannot lock", what);
    char pid[24] = "";
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t got = pread(fd, pid, sizeof pid - 1, 0);
        pid[got > 0 ? strcspn(pid, "\n") : 0] = '\0';
        buf_addf(why,
                 "%s belongs to another admitone that runs (pid %s); stop it, or choose another "
                 "with --data and --ledger",
                 what, pid[0] == '\0' ? "unknown" : pid);
        close(fd);
        return false;
    }
    int len = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)len, 0) != len) {
        data_folder_fail(why, "cannot lock", what);
        close(fd);
        return false;
    }
    *lock = fd;
    return true;
}

enum lock_state lock_look(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES ? LOCK_UNKNOWN : LOCK_FREE;
    bool taken = flock(fd, LOCK_SH | LOCK_NB) != 0;
    close(fd);
    return taken ? LOCK_TAKEN : LOCK_FREE;
}

/* Under another name first, so that no process reads half a key. */
static bool make_key(const char *path, struct buf *why) {
    unsigned char random[KEY_BYTES];
    struct buf text = {0};
    struct buf draft = {0};
    bool ok = getrandom(random, sizeof random, 0) == sizeof random;
    for (size_t i = 0; i < sizeof random; i++) buf_addf(&text, "%02x", random[i]);
    buf_add_char(&text, '\n');
    buf_addf(&draft, "%s.new", path);
    int fd = open(buf_cstr(&draft), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ok = ok && fd >= 0 && write(fd, text.bytes, text.len) == (ssize_t)text.len && fsync(fd) == 0;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    ok = ok && rename(buf_cstr(&draft), path) == 0;
    if (!ok) data_folder_fail(why, "cannot make the key file", path);
    buf_deinit(&text);
    buf_deinit(&draft);
    return ok;
}

bool key_file_read(const char *path, bool make, struct buf *key, struct buf *why) {
    if (make && access(path, F_OK) != 0 && errno == ENOENT && !make_key(path, why)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
        data_folder_fail(why, "cannot read the key file", path);
        if (fd >= 0) close(fd);
        return false;
    }
    ssize_t got = read(fd, buf_reserve(key, KEY_TEXT_BYTES_MAX), KEY_TEXT_BYTES_MAX);
    close(fd);
    if (got < 0) return data_folder_fail(why, "cannot read the key file", path);
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        buf_addf(why, "the key file %s can be read by others; run: chmod 600 %s", path, path);
        return false;
    }
    key->len = (size_t)got;
    while (key->len > 0 && strchr(WHITE, key->bytes[key->len - 1]) != NULL) key->len--;
    while (key->len > 0 && strchr(WHITE, key->bytes[0]) != NULL) buf_consume(key, 1);
    if (key->len < KEY_TEXT_BYTES_MIN || !str_is_text(buf_str(key))) {
        buf_addf(why, "the key file %s must hold one line of at least %d characters", path,
                 KEY_TEXT_BYTES_MIN);
        return false;
    }
    return true;
}
