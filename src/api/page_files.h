/*
 * page_files: the files of web/, as they are embedded in the program or, for development, as a
 * folder has them now.
 */
#ifndef ADMITONE_API_PAGE_FILES_H
#define ADMITONE_API_PAGE_FILES_H

#include "base/buf.h"

struct page_file {
    const char *name; /* "event.html", "lang/en.json"; NULL: the end of the list */
    str bytes;
};

/* Generated from web/ when the program is built (cmake/embed_folder.cmake). */
extern const struct page_file embedded_files[];

/* The files of the folder and of its folder lang, as a list that page_files_free frees; NULL:
 * `why`. */
struct page_file *page_files_read(const char *folder, struct buf *why);
void page_files_free(struct page_file *files);

/* The bytes of the file of that name; `at` is NULL when there is none. */
str page_files_find(const struct page_file *files, str name);

/* Reads a whole file of at most PAGE_FILE_BYTES_MAX bytes. False: `why`. */
#define PAGE_FILE_BYTES_MAX 4194304
bool page_file_read(const char *path, struct buf *out, struct buf *why);

#endif
