#include "text_folder.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

static char folder[256];

int text_folder_make(void **state) {
    const char *tmp = getenv("TMPDIR");
    char lang[300];
    (void)state;
    snprintf(folder, sizeof folder, "%s/admitone-texts-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(lang, sizeof lang, "%s/lang", folder);
    return mkdir(lang, 0700);
}

static int remove_one(const char *path, const struct stat *found, int type, struct FTW *at) {
    (void)found;
    (void)type;
    (void)at;
    return remove(path);
}

int text_folder_remove(void **state) {
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *text_folder(void) {
    return folder;
}

void text_folder_write(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}
