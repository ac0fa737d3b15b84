/* Finds the files of the pages, in the program or in a folder. */
#include "api/page_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"

str page_files_find(const struct page_file *files, str name) {
    for (; files->name != NULL; files++)
        if (str_eq(str_of(files->name), name)) return files->bytes;
    return (str){NULL, 0};
}

bool page_file_read(const char *path, struct buf *out, struct buf *why) {
    FILE *file = fopen(path, "rbe");
    bool ok = file != NULL;
    size_t got = 1;
    while (ok && got > 0 && out->len <= PAGE_FILE_BYTES_MAX) {
        got = fread(buf_reserve(out, 65536), 1, 65536, file);
        out->len += got;
        ok = ferror(file) == 0;
    }
    if (!ok)
        buf_addf(why, "%s: %s", path, strerror(errno));
    else if (out->len > PAGE_FILE_BYTES_MAX)
        buf_addf(why, "%s: larger than %d bytes", path, PAGE_FILE_BYTES_MAX);
    if (file != NULL) fclose(file);
    return why->len == 0;
}

struct file_list {
    struct page_file *files;
    size_t count;
    size_t room;
};

static struct page_file *add_file(struct file_list *list) {
    list->files = mem_make_room(list->files, list->count, &list->room, sizeof *list->files);
    struct page_file *file = &list->files[list->count++];
    *file = (struct page_file){0};
    return file;
}

static bool is_regular(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode);
}

static void read_into(struct file_list *list, const char *path, const char *prefix,
                      const char *name, struct buf *why) {
    struct page_file *file = add_file(list);
    struct buf full_name = {0};
    struct buf bytes = {0};
    page_file_read(path, &bytes, why);
    buf_addf(&full_name, "%s%s", prefix, name);
    file->name = buf_cstr(&full_name);
    file->bytes = (str){buf_cstr(&bytes), bytes.len};
}

/* The files of one folder; `prefix` stands before their names. */
static bool page_files_read_into(struct file_list *list, const char *folder, const char *prefix,
                                 struct buf *why) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0) buf_addf(why, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        struct buf path = {0};
        buf_addf(&path, "%s/%s", folder, name);
        if (why->len == 0 && name[0] != '.' && is_regular(buf_cstr(&path)))
            read_into(list, buf_cstr(&path), prefix, name, why);
        buf_deinit(&path);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return why->len == 0;
}

struct page_file *page_files_read(const char *folder, struct buf *why) {
    struct file_list list = {0};
    struct buf lang = {0};
    buf_addf(&lang, "%s/lang", folder);
    bool ok = page_files_read_into(&list, folder, "", why) &&
              page_files_read_into(&list, buf_cstr(&lang), "lang/", why);
    add_file(&list);
    buf_deinit(&lang);
    if (ok) return list.files;
    page_files_free(list.files);
    return NULL;
}

void page_files_free(struct page_file *files) {
    if (files == NULL) return;
    for (struct page_file *file = files; file->name != NULL; file++) {
        mem_free((void *)(uintptr_t)file->name);
        mem_free((void *)(uintptr_t)file->bytes.at);
    }
    mem_free(files);
}
