/* The data folder, its lock, and the key files in it. */
#include "cli/data_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
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

/* The folder or the file itself: a lock on a file beside it would end with that file's name. It
 * need not be writable; a ledger that does not exist yet is made, empty. */
static int lock_open(const char *path) {
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 && errno == EISDIR ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : fd;
}

/* For the message of a process that is refused. */
static bool lock_write_pid(const char *pid_path) {
    char pid[24];
    int fd = open(pid_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int len = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    bool ok = fd >= 0 && write(fd, pid, (size_t)len) == len;
    if (fd >= 0) close(fd);
    return ok;
}

static void lock_read_pid(const char *pid_path, char *out, size_t size) {
    int fd = open(pid_path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, out, size - 1);
    if (fd >= 0) close(fd);
    out[got > 0 ? got : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

bool lock_take(const char *path, const char *pid_path, const char *what, int *lock,
               struct buf *why) {
    int fd = lock_open(path);
    if (fd < 0) return data_folder_fail(why, "cannot lock", what);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char pid[24];
        lock_read_pid(pid_path, pid, sizeof pid);
        buf_addf(why,
                 "%s belongs to another admitone that runs (pid %s); stop it, or choose another "
                 "with --data and --ledger",
                 what, pid[0] == '\0' ? "unknown" : pid);
        close(fd);
        return false;
    }
    if (!lock_write_pid(pid_path)) {
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

static void secret_file_folder(const char *path, struct buf *out) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        buf_add_char(out, '.');
    else
        buf_append(out, path, slash == path ? 1 : (size_t)(slash - path));
}

/* For root, who may write for the server's user. Others own what they create. */
static bool give_to_owner(int fd, const char *path, const char *folder) {
    struct stat about;
    if (geteuid() != 0) return true;
    if (stat(path, &about) != 0 && stat(folder, &about) != 0) return false;
    return fchown(fd, about.st_uid, about.st_gid) == 0;
}

static bool sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = fsync(fd) == 0;
    close(fd);
    return ok;
}

/* Under another name first. */
bool secret_file_write(const char *path, str text, struct buf *why) {
    struct buf draft = {0};
    struct buf folder = {0};
    buf_addf(&draft, "%s.new", path);
    secret_file_folder(path, &folder);
    int fd = open(buf_cstr(&draft), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && fchmod(fd, 0600) == 0 &&
              write(fd, text.at, text.len) == (ssize_t)text.len &&
              give_to_owner(fd, path, buf_cstr(&folder)) && fsync(fd) == 0;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    ok = ok && rename(buf_cstr(&draft), path) == 0 && sync_folder(buf_cstr(&folder));
    if (!ok) data_folder_fail(why, "cannot write the key file", path);
    buf_deinit(&folder);
    buf_deinit(&draft);
    return ok;
}

static bool make_key(const char *path, struct buf *why) {
    unsigned char random[KEY_BYTES];
    struct buf text = {0};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return data_folder_fail(why, "cannot make the key file", path);
    for (size_t i = 0; i < sizeof random; i++) buf_addf(&text, "%02x", random[i]);
    buf_add_char(&text, '\n');
    bool ok = secret_file_write(path, buf_str(&text), why);
    buf_deinit(&text);
    return ok;
}

bool secret_file_read(const char *path, size_t max, struct buf *text, struct stat *about,
                      struct buf *why) {
    struct stat own;
    if (about == NULL) about = &own;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, about) != 0) {
        data_folder_fail(why, "cannot read the key file", path);
        if (fd >= 0) close(fd);
        return false;
    }
    ssize_t got = read(fd, buf_reserve(text, max + 1), max + 1);
    close(fd);
    if (got < 0) return data_folder_fail(why, "cannot read the key file", path);
    if ((about->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        buf_addf(why, "the key file %s can be read by others; run: chmod 600 %s", path, path);
    else if ((size_t)got > max)
        buf_addf(why, "the key file %s has more than %zu bytes", path, max);
    if (why->len > 0) return false;
    text->len = (size_t)got;
    return true;
}

bool key_file_read(const char *path, bool make, struct buf *key, struct buf *why) {
    if (make && access(path, F_OK) != 0 && errno == ENOENT && !make_key(path, why)) return false;
    if (!secret_file_read(path, KEY_TEXT_BYTES_MAX, key, NULL, why)) return false;
    while (key->len > 0 && strchr(WHITE, key->bytes[key->len - 1]) != NULL) key->len--;
    while (key->len > 0 && strchr(WHITE, key->bytes[0]) != NULL) buf_consume(key, 1);
    if (key->len < KEY_TEXT_BYTES_MIN || !str_is_text(buf_str(key))) {
        buf_addf(why, "the key file %s must hold one line of at least %d characters", path,
                 KEY_TEXT_BYTES_MIN);
        return false;
    }
    return true;
}
