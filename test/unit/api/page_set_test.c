#include "api/page_set.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "text_folder.h"

/* The files of a small site. A test replaces one of them. */
static const struct site_file {
    const char *name;
    const char *text;
} site[] = {
    {"home.html", "<html lang=\"{{lang}}\"><h1 title=\"{{t:home.x}}\">{{t:page.name}}</h1>"
                  "<script>{{texts}}</script>{{languages}}"},
    {"event.html", "<a href=\"{{plain}}\">{{t:event.x}}</a>{{asset:event.js}}"},
    {"admin.html", "{{asset:app.css}}"},
    {"app.css", "p { color: red }"},
    {"common.js", "common;"},
    {"event.js", "event;"},
    {"home.js", "home;"},
    {"seats.js", "seats;"},
    {"notes.txt", "not an asset"},
    {"lang/en.json", "{\"common.c\": \"C\", \"home.x\": \"\\\"</script>\", \"event.x\": \"E\"}"},
    {"lang/ko.json", "{\"common.c\": \"씨\"}"},
};
#define SITE_FILES (sizeof site / sizeof site[0])

static int make_site(void **state) {
    if (text_folder_make(state) != 0) return 1;
    for (size_t i = 0; i < SITE_FILES; i++) text_folder_write(site[i].name, site[i].text);
    return 0;
}

static struct page_options options_of(const char *web_dir) {
    return (struct page_options){.web_dir = web_dir,
                                 .texts = "",
                                 .language = "en",
                                 .name = "A & \"B\" <i>",
                                 .accent = "#c2185b",
                                 .logo = "/logo.svg"};
}

static struct page_set *load(void) {
    struct page_options options = options_of(text_folder());
    struct buf why = {0};
    struct page_set *set = page_set_new(&options, &why);
    if (set == NULL) fail_msg("%s", buf_cstr(&why));
    return set;
}

static void assert_str(str s, const char *expected) {
    char text[2048];
    assert_true(str_copy(s, text, sizeof text));
    assert_string_equal(text, expected);
}

static void markers_are_filled_in_and_escaped(void **state) {
    (void)state;
    struct page_set *set = load();
    size_t ko = page_texts_find(&set->texts, STR("ko"));
    assert_str(set->pages[PAGE_HOME][ko].plain.bytes,
               "<html lang=\"ko\"><h1 title=\"&quot;&lt;/script&gt;\">A &amp; &quot;B&quot; "
               "&lt;i&gt;</h1><script>{\"common.c\":\"씨\",\"home.x\":\"\\\"\\u003c/script>\","
               "\"page.name\":\"A & \\\"B\\\" \\u003ci>\",\"page.accent\":\"#c2185b\","
               "\"page.logo\":\"/logo.svg\"}</script>"
               "[{\"code\":\"en\",\"name\":\"en\"},{\"code\":\"ko\",\"name\":\"ko\"}]");
    page_set_free(set);
}

static void assets_are_named_by_their_contents(void **state) {
    (void)state;
    struct page_set *set = load();
    const struct page_asset *script = page_set_asset(set, STR("event.js"));
    struct buf expected = {0};
    assert_str(script->content.plain.bytes, "common;\nevent;");
    assert_str(page_set_asset(set, STR("seats.js"))->content.plain.bytes, "seats;");
    assert_null(page_set_asset(set, STR("common.js")));
    assert_null(page_set_asset(set, STR("notes.txt")));
    assert_null(page_set_asset(set, STR("home.html")));
    assert_null(page_set_asset(set, STR("lang/en.json")));
    buf_addf(&expected, "<a href=\"?view=plain\">E</a>/assets/event.js?v=%s",
             script->content.version);
    assert_str(set->pages[PAGE_EVENT][set->language].plain.bytes, buf_cstr(&expected));
    assert_str(set->event_halves[set->language].before, "<a href=\"");
    char version[17];
    memcpy(version, script->content.version, sizeof version);
    page_set_free(set);
    text_folder_write("common.js", "other;");
    set = load();
    assert_string_not_equal(page_set_asset(set, STR("event.js"))->content.version, version);
    page_set_free(set);
    buf_deinit(&expected);
}

static void what_does_not_get_smaller_is_not_compressed(void **state) {
    (void)state;
    struct page_set *set = load();
    assert_null(page_set_asset(set, STR("app.css"))->content.gzip.bytes.at);
    page_set_free(set);
    char large[2001];
    memset(large, 'a', 2000);
    large[2000] = '\0';
    text_folder_write("app.css", large);
    set = load();
    const struct page_content *c = &page_set_asset(set, STR("app.css"))->content;
    assert_in_range(c->gzip.bytes.len, 1, 100);
    assert_string_not_equal(c->gzip.etag, c->plain.etag);
    page_set_free(set);
}

static void a_site_with_a_fault_is_refused(void **state) {
    static const struct {
        const char *name;
        const char *text;
        const char *why;
    } rows[] = {
        {"home.html", "{{t:home.y}}", "home.html: {{t:home.y}} is no marker, or its text or asset"},
        {"home.html", "{{asset:x.js}}", "home.html: {{asset:x.js}} is no marker"},
        {"home.html", "{{title}}", "home.html: {{title}} is no marker"},
        {"home.html", "{{lang", "home.html: {{}} is no marker"},
        {"event.html", "{{plain}}{{plain}}", "event.html: {{plain}} is no marker"},
        {"lang/en.json", "{\"a\": 1}", "lang/en.json: the text of \"a\" is not a string"},
    };
    struct page_options options = options_of(text_folder());
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf why = {0};
        text_folder_write(rows[i].name, rows[i].text);
        assert_null(page_set_new(&options, &why));
        if (strstr(buf_cstr(&why), rows[i].why) == NULL) fail_msg("%s", buf_cstr(&why));
        buf_deinit(&why);
        for (size_t k = 0; k < SITE_FILES; k++) text_folder_write(site[k].name, site[k].text);
    }
    struct buf why = {0};
    options.language = "de";
    assert_null(page_set_new(&options, &why));
    assert_string_equal(buf_cstr(&why), "page.language: there are no texts for \"de\"");
    buf_deinit(&why);
}

static void the_embedded_site_is_whole(void **state) {
    (void)state;
    struct page_options options = options_of("");
    struct buf why = {0};
    struct page_set *set = page_set_new(&options, &why);
    if (set == NULL) fail_msg("%s", buf_cstr(&why));
    assert_non_null(page_set_asset(set, STR("event.js")));
    assert_int_equal(page_texts_find(&set->texts, STR("ko")) < set->texts.count, true);
    page_set_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(markers_are_filled_in_and_escaped, make_site,
                                        text_folder_remove),
        cmocka_unit_test_setup_teardown(assets_are_named_by_their_contents, make_site,
                                        text_folder_remove),
        cmocka_unit_test_setup_teardown(what_does_not_get_smaller_is_not_compressed, make_site,
                                        text_folder_remove),
        cmocka_unit_test_setup_teardown(a_site_with_a_fault_is_refused, make_site,
                                        text_folder_remove),
        cmocka_unit_test(the_embedded_site_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
