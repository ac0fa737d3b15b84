#include "core/event_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"

#define HOSTS "shop.example,www.shop.example:8443,10.0.0.1,plain.example:80,localhost:3000"

static void expect(bool is, bool should_be, const char *what) {
    if (is != should_be) fail_msg("%s is %s", what, is ? "accepted" : "refused");
}

static bool may_return(const char *url) {
    struct event e = {.return_hosts = STR(HOSTS)};
    return event_may_return_to(&e, str_of(url), STR("tickets.example"));
}

/* ---- return addresses ---- */

static void users_may_return_to_paths_of_this_site(void **state) {
    (void)state;
    static const char *const urls[] = {
        "/",     "/shop", "/shop?a=b//c#d", "/a//b", "/%2f%2fevil.example", "/.//evil.example",
        "/a:b@c"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        expect(may_return(urls[i]), true, urls[i]);
}

static void users_may_return_to_the_hosts_on_the_list_and_to_this_one(void **state) {
    (void)state;
    static const char *const urls[] = {
        "https://shop.example",
        "https://shop.example/",
        "HTTPS://SHOP.Example/a?b=https://evil.example/#c@d",
        "http://shop.example/",
        "https://shop.example:443/",
        "http://shop.example:80?x",
        "https://shop.example#x",
        "https://www.shop.example:8443/a",
        "http://10.0.0.1/",
        "http://plain.example/",
        "https://plain.example:80/",
        "http://localhost:3000/a",
        "https://tickets.example/e/CONCERT/1",
        "http://Tickets.example:80/",
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        expect(may_return(urls[i]), true, urls[i]);
}

static void users_may_return_to_no_other_host_however_it_is_written(void **state) {
    (void)state;
    static const char *const urls[] = {
        "",
        " ",
        "shop.example",
        "shop.example/",
        "evil.example",
        "?x",
        "#x",
        "./a",
        "../a",
        "//evil.example",
        "//shop.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "\\/evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/\r\nLocation: https://evil.example",
        "/a b",
        "/a\"onload=x",
        "/a'b",
        "/<script>",
        "/\x7f",
        "/\xc2\xa0",
        "/\xe3\x80\x82",
        "\t//evil.example",
        " https://shop.example/",
        "https://shop.example/ ",
        "https://evil.example/",
        "https://evil.example/https://shop.example/",
        "https://evil.example?shop.example",
        "https://evil.example#shop.example",
        "https://shop.example.evil.example/",
        "https://evilshop.example/",
        "https://a.shop.example/",
        "https://shop.example./",
        "https://.shop.example/",
        "https://shop.exampl/",
        "https://shop.example:8443/",
        "https://shop.example:80/",
        "http://shop.example:443/",
        "https://www.shop.example/",
        "https://www.shop.example:84430/",
        "https://www.shop.example:08443/",
        "https://shop.example:/",
        "https://shop.example:x/",
        "https://shop.example:-1/",
        "https://shop.example:65979/", /* 443 in 16 bits */
        "https://shop.example:18446744073709552059/",
        "https://shop.example:443:443/",
        "https://plain.example/",
        "http://localhost/",
        "https://shop.example@evil.example/",
        "https://shop.example:443@evil.example/",
        "https://user@shop.example/",
        "https://user:pass@shop.example/",
        "https://@shop.example/",
        "https://evil.example\\@shop.example/",
        "https://evil.example\\.shop.example/",
        "https://evil.example;shop.example/",
        "https://evil.example,shop.example/",
        "https://shop.example,evil.example/",
        "https://shop.example,www.shop.example:8443/",
        "https://shop.example\\evil.example/",
        "https://evil.example%2f@shop.example/",
        "https://shop%2eexample/",
        "https://shop.example%00.evil.example/",
        "https://\xef\xbd\x93hop.example/",  /* a full-width s */
        "https://shop\xe3\x80\x82.example/", /* an ideographic full stop */
        "https:shop.example/",
        "https:/shop.example/",
        "https:///shop.example/",
        "https:////shop.example/",
        "https:\\\\shop.example/",
        "https//shop.example/",
        "https ://shop.example/",
        "h\nttps://shop.example/",
        "https://shop.ex\nample/",
        "https://shop.example/\n",
        "ftp://shop.example/",
        "ws://shop.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "javascript://shop.example/%0aalert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "view-source:https://shop.example/",
        "blob:https://shop.example/",
        "http://[::1]/",
        "http://167772161/", /* 10.0.0.1 */
        "http://0xa000001/",
        "http://010.0.0.1/",
        "http://10.0.1/",
        "https://",
        "http://",
        "https://?",
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        expect(may_return(urls[i]), false, urls[i]);
}

static void no_byte_but_printable_ascii_is_in_a_return_address(void **state) {
    (void)state;
    struct event e = {.return_hosts = STR(HOSTS)};
    for (int c = 0; c < 256; c++) {
        char path[] = {'/', 'a', (char)c, 'b'};
        char host[] = {'h', 't', 't', 'p', ':', '/', '/', (char)c, 'l', 'o', 'c',
                       'a', 'l', 'h', 'o', 's', 't', ':', '3',     '0', '0', '0'};
        bool plain = c > ' ' && c <= '~' && strchr("\"'<>\\`", c) == NULL;
        if (event_may_return_to(&e, (str){path, sizeof path}, STR("")) != plain)
            fail_msg("byte %d in a path", c);
        if (event_may_return_to(&e, (str){host, sizeof host}, STR("")))
            fail_msg("byte %d in a host", c);
    }
}

static void without_a_list_users_may_return_to_this_site_only(void **state) {
    (void)state;
    struct event e = {.return_hosts = STR("")};
    assert_true(event_may_return_to(&e, STR("/a"), STR("tickets.example")));
    assert_true(event_may_return_to(&e, STR("https://tickets.example/a"), STR("tickets.example")));
    assert_true(event_may_return_to(&e, STR("http://127.0.0.1:8080/"), STR("127.0.0.1:8080")));
    assert_false(event_may_return_to(&e, STR("http://127.0.0.1/"), STR("127.0.0.1:8080")));
    assert_false(event_may_return_to(&e, STR("https://shop.example/"), STR("tickets.example")));
    assert_true(event_may_return_to(&e, STR("/a"), STR("")));
    static const char *const not_hosts[] = {"",      ",",  "evil.example,", "a@evil.example",
                                            "[::1]", ":80"};
    for (size_t i = 0; i < sizeof not_hosts / sizeof *not_hosts; i++)
        assert_false(event_may_return_to(&e, STR("https://evil.example/"), str_of(not_hosts[i])));
}

static void a_return_address_has_a_longest_length(void **state) {
    (void)state;
    struct event e = {.return_hosts = STR("")};
    char path[RETURN_URL_BYTES_MAX + 1];
    memset(path, 'a', sizeof path);
    path[0] = '/';
    assert_true(event_may_return_to(&e, (str){path, RETURN_URL_BYTES_MAX}, STR("")));
    assert_false(event_may_return_to(&e, (str){path, sizeof path}, STR("")));
    assert_false(event_may_return_to(&e, (str){NULL, 0}, STR("")));
}

/* ---- settings ---- */

static void a_return_host_is_a_host_in_lower_case_with_or_without_a_port(void **state) {
    (void)state;
    static const char *const good[] = {
        "a",       "shop.example", "xn--9d0b.kr",        "a-b.c-d",
        "1.2.3.4", "a:1",          "shop.example:65535", "localhost:8080"};
    static const char *const bad[] = {"",
                                      ".",
                                      "a.",
                                      ".a",
                                      "a..b",
                                      "-a",
                                      "a-",
                                      "A.example",
                                      "shop.Example",
                                      "a_b",
                                      "a b",
                                      " a",
                                      "a ",
                                      "a,b",
                                      "a/b",
                                      "a/",
                                      "http://a",
                                      "a@b",
                                      "*.a",
                                      "a:",
                                      "a:0",
                                      "a:01",
                                      "a:65536",
                                      "a:x",
                                      "a:1:2",
                                      ":1",
                                      "[::1]",
                                      "a\n",
                                      "\xc3\xa9.example",
                                      "a?",
                                      "a#",
                                      "a\\"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(return_host_ok(str_of(good[i])), true, good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(return_host_ok(str_of(bad[i])), false, bad[i]);
    char label[64];
    memset(label, 'a', sizeof label);
    assert_true(return_host_ok((str){label, 63}));
    assert_false(return_host_ok((str){label, 64}));
    struct buf longest = {0};
    for (int i = 0; i < 126; i++) buf_add(&longest, STR("a."));
    buf_add(&longest, STR("b:65535"));
    assert_int_equal(longest.len, RETURN_HOST_BYTES_MAX);
    assert_true(return_host_ok(buf_str(&longest)));
    assert_false(return_host_ok((str){"c", 0}));
    longest.len -= 6;
    buf_add(&longest, STR("b"));
    assert_false(return_host_ok(buf_str(&longest)));
    buf_deinit(&longest);
}

static void a_list_of_return_hosts_has_at_most_sixteen(void **state) {
    (void)state;
    struct buf list = {0};
    for (int i = 0; i <= RETURN_HOSTS_MAX; i++) {
        assert_true(return_hosts_ok(buf_str(&list)));
        if (i > 0) buf_add_char(&list, ',');
        buf_addf(&list, "h%d.example:%d", i, i + 1);
    }
    assert_false(return_hosts_ok(buf_str(&list)));
    buf_deinit(&list);
    assert_true(return_hosts_ok(STR(HOSTS)));
    assert_false(return_hosts_ok(STR(",")));
    assert_false(return_hosts_ok(STR("a,")));
    assert_false(return_hosts_ok(STR(",a")));
    assert_false(return_hosts_ok(STR("a,,b")));
    assert_false(return_hosts_ok(STR("a, b")));
}

static void an_accent_is_a_hash_and_six_digits(void **state) {
    (void)state;
    assert_true(page_accent_ok(STR("#c2185b")));
    assert_true(page_accent_ok(STR("#09AFaf")));
    static const char *const bad[] = {"",        "#",        "#fff",           "c2185b",
                                      "#c2185",  "#c2185b0", "#c2185g",        "#c2185 ",
                                      "#c2185;", "red",      "#\xef\xbc\x91zz"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(page_accent_ok(str_of(bad[i])), false, bad[i]);
    assert_false(page_accent_ok((str){"#c2185\0", 7}));
}

static void a_logo_is_an_https_url_or_a_path(void **state) {
    (void)state;
    static const char *const good[] = {"https://cdn.example/logo.svg",
                                       "https://Cdn.example:8443/a?b=c&d", "/logo.png", "/"};
    static const char *const bad[] = {"",
                                      "logo.png",
                                      "//cdn.example/a",
                                      "http://cdn.example/a",
                                      "data:image/png,x",
                                      "javascript:x",
                                      "https://",
                                      "https:///a",
                                      "https://a b/",
                                      "https://u@a/",
                                      "/a\"b",
                                      "/a'b",
                                      "/a\\b",
                                      "/<b",
                                      "/a b",
                                      "/a\nb",
                                      "/\xc3\xa9",
                                      "/\\a"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(page_logo_ok(str_of(good[i])), true, good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(page_logo_ok(str_of(bad[i])), false, bad[i]);
    char path[PAGE_LOGO_BYTES_MAX + 1];
    memset(path, '/', sizeof path);
    path[1] = 'a';
    assert_true(page_logo_ok((str){path, PAGE_LOGO_BYTES_MAX}));
    assert_false(page_logo_ok((str){path, sizeof path}));
}

static void a_language_is_a_code_as_browsers_send_it(void **state) {
    (void)state;
    static const char *const good[] = {"ko",         "en",         "fil", "pt-BR",
                                       "zh-Hant-TW", "de-CH-1996", "KO",  "en-x-a"};
    static const char *const bad[] = {
        "",       "k",         "kore",
        "ko-",    "-ko",       "ko_KR",
        "ko--KR", "1a",        "ko-123456789",
        "ko.KR",  "k\xc3\xb6", "en-aaaaaaaa-aaaaaaaa-aaaaaaaa-aaaaaaaa"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        expect(page_language_ok(str_of(good[i])), true, good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(page_language_ok(str_of(bad[i])), false, bad[i]);
}

static void text_for_people_has_newlines_and_no_other_control_characters(void **state) {
    (void)state;
    assert_true(prose_ok(STR(""), 0));
    assert_true(prose_ok((str){NULL, 0}, 0));
    assert_true(prose_ok(STR("\n\n"), 2));
    assert_true(prose_ok(STR("<b>\"'&\\\xd7\xa9\xd7\x9c\n\xe2\x80\xae"), 20));
    for (char c = 0; c >= 0 && c < 127; c++) {
        char text[] = {'a', c, 'b'};
        expect(prose_ok((str){text, 3}, 3), c == '\n' || c >= ' ', text);
    }
    assert_false(prose_ok(STR("a\x7f"), 5));
    assert_false(prose_ok(STR("a\xc2\x85"), 5));
    assert_false(prose_ok(STR("a\xff"), 5));
    assert_false(prose_ok(STR("a\xed\xa0\x80"), 5));
    assert_false(prose_ok(STR("\xc3\n\xa9"), 5)); /* a character in two */
}

static void the_length_of_text_for_people_is_counted_in_characters(void **state) {
    (void)state;
    assert_true(prose_ok(STR("a\xc3\xa9\xec\x9e\xa0\xf0\x9f\x98\x80"), 4));
    assert_false(prose_ok(STR("a\xc3\xa9\xec\x9e\xa0\xf0\x9f\x98\x80"), 3));
    assert_false(prose_ok(STR("a"), 0));
}

static void an_event_whose_texts_are_not_within_their_limits_is_not_sound(void **state) {
    (void)state;
    struct event e = {.version = 1,
                      .type = "T",
                      .id = "1",
                      .opens_at_ms = CLOCK_NONE_MS,
                      .closes_at_ms = CLOCK_NONE_MS,
                      .starts_at_ms = CLOCK_NONE_MS,
                      .opened_at_ms = CLOCK_NONE_MS};
    assert_true(event_ok(&e));
    struct buf text = {0};
    while (text.len <= PAGE_BYTES_MAX) buf_add_char(&text, ' ');
    e.page = (str){text.bytes, PAGE_BYTES_MAX};
    assert_true(event_ok(&e));
    e.page = (str){text.bytes, PAGE_BYTES_MAX + 1};
    assert_false(event_ok(&e));
    e.page = STR("");
    e.notice = (str){text.bytes, NOTICE_CHARS_MAX};
    assert_true(event_ok(&e));
    e.notice = (str){text.bytes, NOTICE_CHARS_MAX + 1};
    assert_false(event_ok(&e));
    e.notice = STR("");
    e.return_hosts = STR("A");
    assert_false(event_ok(&e));
    buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_may_return_to_paths_of_this_site),
        cmocka_unit_test(users_may_return_to_the_hosts_on_the_list_and_to_this_one),
        cmocka_unit_test(users_may_return_to_no_other_host_however_it_is_written),
        cmocka_unit_test(no_byte_but_printable_ascii_is_in_a_return_address),
        cmocka_unit_test(without_a_list_users_may_return_to_this_site_only),
        cmocka_unit_test(a_return_address_has_a_longest_length),
        cmocka_unit_test(a_return_host_is_a_host_in_lower_case_with_or_without_a_port),
        cmocka_unit_test(a_list_of_return_hosts_has_at_most_sixteen),
        cmocka_unit_test(an_accent_is_a_hash_and_six_digits),
        cmocka_unit_test(a_logo_is_an_https_url_or_a_path),
        cmocka_unit_test(a_language_is_a_code_as_browsers_send_it),
        cmocka_unit_test(text_for_people_has_newlines_and_no_other_control_characters),
        cmocka_unit_test(the_length_of_text_for_people_is_counted_in_characters),
        cmocka_unit_test(an_event_whose_texts_are_not_within_their_limits_is_not_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
