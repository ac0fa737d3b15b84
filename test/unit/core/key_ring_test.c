#include "core/key_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define SHOP "shop-1 shop sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define OPS "ops operate sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"

static void roles_include_what_the_documentation_says(void **state) {
    (void)state;
    static const bool expected[4][4] = {
        [KEY_ROLE_READ] = {[KEY_ROLE_READ] = true},
        [KEY_ROLE_SHOP] = {[KEY_ROLE_SHOP] = true},
        [KEY_ROLE_OPERATE] = {[KEY_ROLE_READ] = true, [KEY_ROLE_OPERATE] = true},
        [KEY_ROLE_OWN] = {true, true, true, true},
    };
    for (int has = 0; has < 4; has++)
        for (int needed = 0; needed < 4; needed++)
            assert_int_equal(key_role_includes((enum key_role)has, (enum key_role)needed),
                             expected[has][needed]);
}

static void expect_keys(const char *text, size_t count, struct key_ring *ring) {
    struct buf why = {0};
    assert_true(key_ring_parse(str_of(text), ring, &why));
    assert_int_equal(ring->count, count);
    buf_deinit(&why);
}

static void lines_are_keys_comments_or_blank(void **state) {
    (void)state;
    struct key_ring ring;
    expect_keys("", 0, &ring);
    expect_keys("\n  # a comment\n#" SHOP "\n\t\n", 0, &ring);
    expect_keys("# keys\n" SHOP "\r\n\n \t" OPS " \n", 2, &ring);
    assert_string_equal(ring.keys[0].name, "shop-1");
    assert_int_equal(ring.keys[0].role, KEY_ROLE_SHOP);
    assert_string_equal(ring.keys[1].name, "ops");
    assert_int_equal(ring.keys[1].role, KEY_ROLE_OPERATE);
    unsigned char digest[SHA256_BYTES];
    sha256_of(STR("abc"), digest);
    assert_ptr_equal(key_ring_find(&ring, digest), &ring.keys[0]);
    sha256_of(STR("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), digest);
    assert_ptr_equal(key_ring_find(&ring, digest), &ring.keys[1]);
    sha256_of(STR("abd"), digest);
    assert_null(key_ring_find(&ring, digest));
    assert_ptr_equal(key_ring_named(&ring, STR("ops")), &ring.keys[1]);
    assert_null(key_ring_named(&ring, STR("op")));
}

static void expect_mistake(const char *text, const char *expected) {
    struct buf why = {0};
    struct key_ring ring;
    assert_false(key_ring_parse(str_of(text), &ring, &why));
    assert_string_equal(buf_cstr(&why), expected);
    buf_deinit(&why);
}

static void a_mistake_is_named_with_its_line(void **state) {
    (void)state;
    static const char name[] = "line 1: a name has up to 32 letters, digits, '_', '-' or '.', and "
                               "is not admin or demo";
    static const char digest[] = "line 1: the third word is not sha256: and the 64 hexadecimal "
                                 "digits of the key's SHA-256";
    expect_mistake("admin own sha256:00", name);
    expect_mistake("demo own sha256:00", name);
    expect_mistake("a/b own sha256:00", name);
    expect_mistake("a23456789b23456789c23456789d23456 own sha256:00", name);
    expect_mistake("shop", "line 1: the role is not one of read, shop, operate, own");
    expect_mistake("\n\nshop all x", "line 3: the role is not one of read, shop, operate, own");
    expect_mistake("shop own", digest);
    expect_mistake("shop own sha256:ba78", digest);
    expect_mistake(
        "shop own sha512:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", digest);
    expect_mistake(
        "shop own sha256:xa7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", digest);
    expect_mistake(SHOP " x", "line 1: there is text behind the digest");
    expect_mistake(SHOP "\n" SHOP, "line 2: another line has the same name");
    expect_mistake(SHOP "\nx" SHOP, "line 2: another line has the same key");
}

static void a_hundred_keys_fit(void **state) {
    (void)state;
    struct buf text = {0};
    struct key_ring ring;
    unsigned char digest[SHA256_BYTES];
    char name[8];
    for (int i = 0; i < KEY_RING_MAX; i++) {
        snprintf(name, sizeof name, "k%d", i);
        sha256_of(str_of(name), digest);
        key_line_add(&text, str_of(name), KEY_ROLE_READ, digest);
    }
    expect_keys(buf_cstr(&text), KEY_RING_MAX, &ring);
    for (int i = 0; i < KEY_RING_MAX; i++) {
        snprintf(name, sizeof name, "k%d", i);
        sha256_of(str_of(name), digest);
        assert_ptr_equal(key_ring_find(&ring, digest), key_ring_named(&ring, str_of(name)));
    }
    buf_add(&text, STR(SHOP));
    expect_mistake(buf_cstr(&text), "line 101: there are more than 100 keys");
    buf_deinit(&text);
}

static void a_key_has_the_prefix_and_all_random_bytes(void **state) {
    (void)state;
    unsigned char random[KEY_RANDOM_BYTES] = {0};
    char key[KEY_TEXT_BYTES + 1] = "";
    key_text_from(random, key);
    assert_string_equal(key, "admitone_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    random[0] = 0xff;
    random[KEY_RANDOM_BYTES - 1] = 0xff;
    key_text_from(random, key);
    assert_string_equal(key, "admitone__wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAP8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_include_what_the_documentation_says),
        cmocka_unit_test(lines_are_keys_comments_or_blank),
        cmocka_unit_test(a_mistake_is_named_with_its_line),
        cmocka_unit_test(a_hundred_keys_fit),
        cmocka_unit_test(a_key_has_the_prefix_and_all_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
