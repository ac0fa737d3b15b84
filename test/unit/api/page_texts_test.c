#include "api/page_texts.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "text_folder.h"

#define FILE_OF(name, text)                                                                        \
    { name, STR_INIT(text) }

static const struct page_file own_files[] = {
    FILE_OF("event.html", "<p>"),
    FILE_OF("lang/en.json",
            "{\"common.languageName\": \"English\", \"a.x\": \"X\", \"b.y\": \"</Y>\"}"),
    FILE_OF("lang/ko.json", "{\"common.languageName\": \"한국어\", \"a.x\": \"엑스\"}"),
    {0},
};

static void assert_str(str s, const char *expected) {
    assert_int_equal(s.len, strlen(expected));
    assert_memory_equal(s.at, expected, s.len);
}

static void a_text_that_a_language_lacks_is_the_english_one(void **state) {
    struct page_texts texts;
    struct buf why = {0};
    (void)state;
    assert_true(page_texts_load(&texts, own_files, "", &why));
    size_t ko = page_texts_find(&texts, STR("ko"));
    assert_int_equal(texts.count, 2);
    assert_int_equal(page_texts_find(&texts, STR("de")), 2);
    assert_str(page_text(&texts, ko, STR("a.x")), "엑스");
    assert_str(page_text(&texts, ko, STR("b.y")), "</Y>");
    assert_null(page_text(&texts, ko, STR("c")).at);
    assert_str(page_texts_name(&texts, ko), "한국어");
    page_texts_deinit(&texts);
}

static void a_page_gets_the_texts_of_its_prefixes(void **state) {
    static const str prefixes[] = {STR_INIT("b."), STR_INIT("a."), {0}};
    struct page_texts texts;
    struct buf why = {0};
    struct buf json = {0};
    (void)state;
    assert_true(page_texts_load(&texts, own_files, "", &why));
    page_texts_add_json(&texts, page_texts_find(&texts, STR("ko")), prefixes, &json);
    assert_string_equal(buf_cstr(&json), "\"a.x\":\"엑스\",\"b.y\":\"</Y>\",");
    buf_clear(&json);
    page_texts_add_json(&texts, page_texts_find(&texts, STR("en")), prefixes + 1, &json);
    assert_string_equal(buf_cstr(&json), "\"a.x\":\"X\",");
    buf_clear(&json);
    page_texts_add_languages(&texts, &json);
    assert_string_equal(buf_cstr(&json), "[{\"code\":\"en\",\"name\":\"English\"},"
                                         "{\"code\":\"ko\",\"name\":\"한국어\"}]");
    buf_deinit(&json);
    page_texts_deinit(&texts);
}

static void an_operator_replaces_texts_and_adds_a_language(void **state) {
    struct page_texts texts;
    struct buf why = {0};
    (void)state;
    text_folder_write("de.json", "{\"b.y\": \"Ypsilon\"}");
    text_folder_write("ko.json", "{\"a.x\": \"다른\"}");
    text_folder_write("README", "no texts");
    assert_true(page_texts_load(&texts, own_files, text_folder(), &why));
    size_t de = page_texts_find(&texts, STR("de"));
    assert_int_equal(texts.count, 3);
    assert_str(page_text(&texts, de, STR("b.y")), "Ypsilon");
    assert_str(page_text(&texts, de, STR("a.x")), "X");
    assert_str(page_texts_name(&texts, de), "de");
    assert_str(page_text(&texts, page_texts_find(&texts, STR("ko")), STR("a.x")), "다른");
    page_texts_deinit(&texts);
}

static void a_wrong_file_is_named_with_its_fault(void **state) {
    static const struct {
        const char *name;
        const char *text;
        const char *why;
    } rows[] = {
        {"de.json", "{\"a.x\": \"X\", \"a.z\": \"Z\"}", "de.json: unknown key \"a.z\""},
        {"de.json", "{\"a.x\": 1}", "de.json: the text of \"a.x\" is not a string"},
        {"de.json", "{\"a.x\": \"X\",\n}", "de.json:2: invalid JSON: "},
        {"de.json", "{\"a.x\": \"X\", \"a.x\": \"X\"}", "de.json:1: invalid JSON: duplicate"},
        {"de.json", "[]", "de.json: must be one JSON object of keys and texts"},
        {"DE.json", "{}", "DE.json: the name of a language's file is xx.json, as in de.json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct page_texts texts;
        struct buf why = {0};
        text_folder_write(rows[i].name, rows[i].text);
        assert_false(page_texts_load(&texts, own_files, text_folder(), &why));
        if (strstr(buf_cstr(&why), rows[i].why) == NULL) fail_msg("%s", buf_cstr(&why));
        assert_memory_equal(why.bytes, text_folder(), strlen(text_folder()));
        page_texts_deinit(&texts);
        buf_deinit(&why);
        text_folder_write(rows[i].name, "{}");
    }
}

static void a_folder_that_is_not_there_is_named(void **state) {
    struct page_texts texts;
    struct buf why = {0};
    (void)state;
    assert_false(page_texts_load(&texts, own_files, "/nowhere/texts", &why));
    assert_string_equal(buf_cstr(&why), "/nowhere/texts: No such file or directory");
    page_texts_deinit(&texts);
    buf_deinit(&why);
}

static void html_has_no_markup_of_a_text(void **state) {
    struct buf out = {0};
    (void)state;
    html_escape(&out, STR("<b title='x' id=\"y\">A & B</b>"));
    assert_string_equal(buf_cstr(&out),
                        "&lt;b title=&#39;x&#39; id=&quot;y&quot;&gt;A &amp; B&lt;/b&gt;");
    buf_clear(&out);
    html_add_json(&out, STR("{\"a\":\"</script><!--\"}"));
    assert_string_equal(buf_cstr(&out), "{\"a\":\"\\u003c/script>\\u003c!--\"}");
    buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_that_a_language_lacks_is_the_english_one),
        cmocka_unit_test(a_page_gets_the_texts_of_its_prefixes),
        cmocka_unit_test_setup_teardown(an_operator_replaces_texts_and_adds_a_language,
                                        text_folder_make, text_folder_remove),
        cmocka_unit_test_setup_teardown(a_wrong_file_is_named_with_its_fault, text_folder_make,
                                        text_folder_remove),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
        cmocka_unit_test(html_has_no_markup_of_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
