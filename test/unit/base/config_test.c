#include "base/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct values {
    const char *file;
    const char *listen;
    int64_t max_active;
    bool demo;
    int64_t level;
    const struct config_pair *kafka;
};

static const struct config_key keys[] = {
    {"config", CONFIG_TEXT, offsetof(struct values, file), "", 0, 0, NULL, "FILE", "the file"},
    {"listen", CONFIG_TEXT, offsetof(struct values, listen), "here", 0, 0, NULL, "ADDR", "where"},
    {"queue.max_active", CONFIG_I64, offsetof(struct values, max_active), "100", 1, 1000, NULL, "N",
     "how many"},
    {"demo", CONFIG_BOOL, offsetof(struct values, demo), "false", 0, 0, NULL, "", "try it"},
    {"log.level", CONFIG_WORD, offsetof(struct values, level), "info", 0, 0, "debug info warn",
     "WORD", "how much"},
    {"kafka.*", CONFIG_PAIRS, offsetof(struct values, kafka), "", 0, 0, NULL, "VALUE", "passed on"},
    {0},
};

/* Loads, and compares with the expected result: `wrong` is a part of the message, or NULL. */
static struct values load(char *const *args, char *const *environment, const char *wrong) {
    struct config config;
    static struct values v;
    static char listen[64];
    struct buf why = {0};
    bool ok = config_load(&config, keys, &v, args, environment, &why);
    if (ok != (wrong == NULL)) fail_msg("unexpected: %s", buf_cstr(&why));
    if (wrong != NULL && strstr(buf_cstr(&why), wrong) == NULL)
        fail_msg("\"%s\" is not in: %s", wrong, buf_cstr(&why));
    str_copy(str_of(v.listen), listen, sizeof listen);
    v.listen = listen;
    config_deinit(&config);
    buf_deinit(&why);
    return v;
}

static char *none[] = {NULL};

static void defaults_stand_where_nothing_is_said(void **state) {
    (void)state;
    struct values v = load(none, none, NULL);
    assert_string_equal(v.listen, "here");
    assert_int_equal(v.max_active, 100);
    assert_false(v.demo);
    assert_int_equal(v.level, 1);
}

static void write_file(char path[32], const char *text) {
    str_copy(STR("/tmp/config_test.XXXXXX"), path, 32);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void a_flag_beats_the_environment_which_beats_the_file(void **state) {
    (void)state;
    char path[32];
    char variable[64];
    write_file(path, "listen = file\n[queue]\nmax_active = 7\n[log]\nlevel = warn\n");
    snprintf(variable, sizeof variable, "ADMITONE_CONFIG=%s", path);
    char *environment[] = {"PATH=/bin", "ADMITONE_LISTEN=environment",
                           "ADMITONE_QUEUE_MAX_ACTIVE=8", variable, NULL};
    char *args[] = {"--queue-max-active", "9", "--demo", NULL};
    struct values v = load(args, environment, NULL);
    assert_int_equal(v.max_active, 9);
    assert_string_equal(v.listen, "environment");
    assert_int_equal(v.level, 2);
    assert_true(v.demo);
    unlink(path);
}

static void both_spellings_of_a_flag_mean_the_same(void **state) {
    (void)state;
    char *joined[] = {"--queue-max-active=12", "--demo=false", "--listen=a=b", NULL};
    struct values v = load(joined, none, NULL);
    assert_int_equal(v.max_active, 12);
    assert_false(v.demo);
    assert_string_equal(v.listen, "a=b");
}

static void what_is_wrong_is_named_with_its_place(void **state) {
    (void)state;
    static const struct {
        char *args[3];
        char *environment[2];
        const char *wrong;
    } rows[] = {
        {{"--queue-max-activ", "1"}, {0}, "did you mean --queue-max-active?"},
        {{"--nonsense", "1"}, {0}, "unknown key --nonsense"},
        {{"--queue-max-active", "0"}, {0}, "queue.max_active (flag --queue-max-active): \"0\""},
        {{"--queue-max-active", "1001"}, {0}, "a whole number from 1 to 1000"},
        {{"--queue-max-active", "x"}, {0}, "\"x\" is not"},
        {{"--queue-max-active"}, {0}, "--queue-max-active needs a value: N"},
        {{"--demo=maybe"}, {0}, "true or false"},
        {{"--log-level", "loud"}, {0}, "one of: debug info warn"},
        {{"stray"}, {0}, "unexpected argument \"stray\""},
        {{0}, {"ADMITONE_LOG_LEVEL=loud"}, "log.level (environment ADMITONE_LOG_LEVEL)"},
        {{"--config", "/nonexistent/x.ini"}, {0}, "cannot read the configuration file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        load(rows[i].args, rows[i].environment, rows[i].wrong);
}

static void a_wrong_line_of_the_file_is_named_with_its_number(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *wrong;
    } rows[] = {
        {"listen = x\n[queue]\nmax_activ = 3\n", "did you mean queue.max_active? ("},
        {"listen = x\n[queue]\nmax_active = many\n", ", line 3)"},
        {"listen = x\nwhat is this\n", "line 2 is neither"},
        {"listen = x\n  y\n", "line 2 starts with white space"},
        {"listen = x\n\n[queue]\n\tmax_active = 3\n", "line 4 starts with white space"},
        {"config = other.ini\n", "can't name another"},
        {"listen = x\n\flisten = y\n", "line 2 has a control character"},
        {"nonsense = 1\nrubbish = 2\n", "unknown key nonsense ("},
        {"listen = x\n\n[queue\nmax_active = 3\n", "line 3 is neither"},
        {"listen = x\n[queue ; ]\nmax_active = 3\n", "line 2 is neither"},
        {"[queue] max_active = 3\n", "line 1 is neither"},
        {"listen ; = x\n", "line 1 is neither"},
        {"nonsense = 1\nwhat is this\n", "line 2 is neither"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[32];
        write_file(path, rows[i].text);
        char *args[] = {"--config", path, NULL};
        load(args, none, rows[i].wrong);
        unlink(path);
    }
}

static void comments_may_stand_behind_a_section_and_a_value(void **state) {
    (void)state;
    char path[32];
    write_file(
        path, "\xEF\xBB\xBF# one\n; two\nlisten : there ; three\n[queue] ; four\nmax_active = 7\n");
    char *args[] = {"--config", path, NULL};
    struct values v = load(args, none, NULL);
    assert_string_equal(v.listen, "there");
    assert_int_equal(v.max_active, 7);
    unlink(path);
}

/* The result of load_warnings is valid until its next call. */
static const char *load_warnings(char *variable) {
    static char text[256];
    struct config config;
    struct values v;
    struct buf why = {0};
    char *environment[] = {variable, "ADMITONE_QUEUE_MAX_ACTIVE=8", NULL};
    assert_true(config_load(&config, keys, &v, none, environment, &why));
    assert_int_equal(v.max_active, 8);
    str_copy(buf_str(&config.warnings), text, sizeof text);
    config_deinit(&config);
    buf_deinit(&why);
    return text;
}

static void an_environment_variable_that_is_no_key_is_ignored_with_a_warning(void **state) {
    (void)state;
    assert_string_equal(load_warnings("ADMITONE_LISTN=x"),
                        "unknown key ADMITONE_LISTN; did you mean ADMITONE_LISTEN?\n");
    assert_string_equal(load_warnings("ADMITONE_RUBBISH"), "unknown key ADMITONE_RUBBISH\n");
    /* A user may set this by mistake, in the belief that there is such a key. */
    assert_string_equal(load_warnings("ADMITONE_PORT=9000"), "unknown key ADMITONE_PORT\n");
    assert_string_equal(load_warnings("ADMITONE_PORT_TCP=1"), "unknown key ADMITONE_PORT_TCP\n");
    assert_string_equal(load_warnings("ADMITONE_PORT_X_TCP=1"),
                        "unknown key ADMITONE_PORT_X_TCP\n");
}

static void the_variables_of_a_kubernetes_service_are_ignored_silently(void **state) {
    (void)state;
    char *variables[] = {
        "ADMITONE_SERVICE_HOST=10.0.0.11",
        "ADMITONE_SERVICE_PORT=8080",
        "ADMITONE_SERVICE_PORT_HTTP=8080",
        "ADMITONE_PORT=tcp://10.0.0.11:8080",
        "ADMITONE_PORT_8080_TCP=tcp://10.0.0.11:8080",
        "ADMITONE_PORT_8080_TCP_PROTO=tcp",
        "ADMITONE_PORT_8080_TCP_PORT=8080",
        "ADMITONE_PORT_8080_TCP_ADDR=10.0.0.11",
        "ADMITONE_PORT_53_UDP_ADDR=10.0.0.11",
        "ADMITONE_ADMIN_SERVICE_HOST=10.0.0.12",
        "ADMITONE_ADMIN_PORT=tcp://10.0.0.12:8081",
        ("ADMITONE_A_VERY_LONG_NAME_OF_A_SERVICE_THAT_IS_LONGER_THAN_ANY_KEY_IS_PORT_"
         "8081_TCP_ADDR=10.0.0.12")};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        assert_string_equal(load_warnings(variables[i]), "");
}

static void what_stands_behind_a_nul_is_not_lost(void **state) {
    (void)state;
    static const char text[] = "listen = x\n\0\nnonsense = 1\n";
    char path[32] = "/tmp/config_test.XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    char *args[] = {"--config", path, NULL};
    load(args, none, "line 2 has a control character");
    unlink(path);
}

static void lines_may_end_as_on_windows(void **state) {
    (void)state;
    char path[32];
    write_file(path, "listen = there\r\n  \r\n[queue]\r\nmax_active = 7\r\n");
    char *args[] = {"--config", path, NULL};
    struct values v = load(args, none, NULL);
    assert_string_equal(v.listen, "there");
    assert_int_equal(v.max_active, 7);
    unlink(path);
}

/* inih would read the rest of a long line as the next line, and silently change a value. */
static void a_line_too_long_for_the_file_is_refused_and_fits_a_flag(void **state) {
    (void)state;
    struct buf text = {0};
    char path[32];
    buf_add(&text, STR("listen = "));
    for (int i = 0; i < 40; i++) buf_add(&text, STR("192.0.2.1, "));
    write_file(path, buf_cstr(&text));
    char *args[] = {"--config", path, NULL};
    load(args, none, "line 1 has more than 190 bytes");
    unlink(path);
    buf_deinit(&text);
}

static void a_name_longer_than_any_key_is_no_key(void **state) {
    (void)state;
    char name[200] = "--";
    memset(name + 2, 'a', sizeof name - 3);
    char *args[] = {name, "1", NULL};
    load(args, none, "unknown key --aaaaaaaa");
}

static void a_folder_is_no_file(void **state) {
    (void)state;
    char *args[] = {"--config", "/tmp", NULL};
    load(args, none, "cannot read the configuration file /tmp: Is a directory");
}

static void printing_shows_where_each_value_came_from(void **state) {
    (void)state;
    struct config config;
    struct values v;
    struct buf why = {0};
    struct buf out = {0};
    char *args[] = {"--queue-max-active", "9", NULL};
    char *environment[] = {"ADMITONE_LISTEN=there", NULL};
    assert_true(config_load(&config, keys, &v, args, environment, &why));
    config_print(&config, &out);
    const char *text = buf_cstr(&out);
    assert_non_null(strstr(text, "listen = there"));
    assert_non_null(strstr(text, "; environment ADMITONE_LISTEN\n"));
    assert_non_null(strstr(text, "[queue]\nmax_active = 9"));
    assert_non_null(strstr(text, "; flag --queue-max-active\n"));
    assert_non_null(strstr(text, "; default\n"));
    config_deinit(&config);
    buf_deinit(&out);
    buf_deinit(&why);
}

static void names_behind_a_prefix_are_kept_with_their_values(void **state) {
    (void)state;
    struct config config;
    struct values v;
    struct buf why = {0};
    struct buf out = {0};
    char path[32];
    write_file(path, "[kafka]\nclient.id = file\nlinger.ms = 7\n");
    char *args[] = {"--config", path, "--kafka-client-id", "flag", "--kafka-x.y=z", NULL};
    char *environment[] = {"ADMITONE_KAFKA_CLIENT_ID=environment",
                           "ADMITONE_KAFKA_SASL_PASSWORD=hidden", NULL};
    if (!config_load(&config, keys, &v, args, environment, &why)) fail_msg("%s", buf_cstr(&why));
    static const struct config_pair expected[] = {{"client.id", "flag"},
                                                  {"linger.ms", "7"},
                                                  {"sasl.password", "hidden"},
                                                  {"x.y", "z"},
                                                  {NULL, NULL}};
    size_t i = 0;
    for (; expected[i].name != NULL; i++) {
        assert_string_equal(v.kafka[i].name, expected[i].name);
        assert_string_equal(v.kafka[i].value, expected[i].value);
    }
    assert_null(v.kafka[i].name);
    config_print(&config, &out);
    const char *text = buf_cstr(&out);
    assert_non_null(strstr(text, "[kafka]\nclient.id = flag"));
    assert_non_null(strstr(text, "; flag --kafka-client-id\n"));
    assert_non_null(strstr(text, "sasl.password = ***"));
    assert_null(strstr(text, "hidden"));
    config_deinit(&config);
    buf_deinit(&out);
    buf_deinit(&why);
    unlink(path);
}

static void without_such_names_the_list_is_empty(void **state) {
    (void)state;
    struct config config;
    struct values v;
    struct buf why = {0};
    assert_true(config_load(&config, keys, &v, none, none, &why));
    assert_null(v.kafka[0].name);
    config_deinit(&config);
    char *only_the_prefix[] = {"--kafka-", "x", NULL};
    load(only_the_prefix, none, "unknown key --kafka-");
}

/* --print-config writes a file that --config reads. */
static void what_is_printed_can_be_read_again(void **state) {
    (void)state;
    struct config config;
    struct values v;
    struct buf why = {0};
    struct buf out = {0};
    char *args[] = {"--queue-max-active", "9", "--log-level", "warn", NULL};
    assert_true(config_load(&config, keys, &v, args, none, &why));
    config_print(&config, &out);
    char path[32];
    write_file(path, buf_cstr(&out));
    char *again[] = {"--config", path, NULL};
    struct values read = load(again, none, NULL);
    assert_int_equal(read.max_active, 9);
    assert_int_equal(read.level, 2);
    unlink(path);
    config_deinit(&config);
    buf_deinit(&out);
    buf_deinit(&why);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_stand_where_nothing_is_said),
        cmocka_unit_test(a_flag_beats_the_environment_which_beats_the_file),
        cmocka_unit_test(both_spellings_of_a_flag_mean_the_same),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
        cmocka_unit_test(a_wrong_line_of_the_file_is_named_with_its_number),
        cmocka_unit_test(a_line_too_long_for_the_file_is_refused_and_fits_a_flag),
        cmocka_unit_test(comments_may_stand_behind_a_section_and_a_value),
        cmocka_unit_test(an_environment_variable_that_is_no_key_is_ignored_with_a_warning),
        cmocka_unit_test(the_variables_of_a_kubernetes_service_are_ignored_silently),
        cmocka_unit_test(what_stands_behind_a_nul_is_not_lost),
        cmocka_unit_test(lines_may_end_as_on_windows),
        cmocka_unit_test(a_name_longer_than_any_key_is_no_key),
        cmocka_unit_test(a_folder_is_no_file),
        cmocka_unit_test(printing_shows_where_each_value_came_from),
        cmocka_unit_test(names_behind_a_prefix_are_kept_with_their_values),
        cmocka_unit_test(without_such_names_the_list_is_empty),
        cmocka_unit_test(what_is_printed_can_be_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
