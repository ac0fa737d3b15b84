/*
 * text_folder: a temporary folder of text files for one test, under $TMPDIR.
 */
#ifndef ADMITONE_TEST_TEXT_FOLDER_H
#define ADMITONE_TEST_TEXT_FOLDER_H

/* Setup and teardown of cmocka. The folder has a folder `lang`. */
int text_folder_make(void **state);
int text_folder_remove(void **state);

/* Its path, until the next one is made. */
const char *text_folder(void);
/* Writes or replaces a file: "en.json", "lang/en.json". */
void text_folder_write(const char *name, const char *text);

#endif
