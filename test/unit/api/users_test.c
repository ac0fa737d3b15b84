#include "api/users.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/token.h"
#include "net/internal.h"

#define ADMIN_KEY "the admin key, 0123456789"
#define FIXTURE_KEY "the shop's key, 0123456789"
#define ANON_1 "anon-AAAAAAAAAAAAAAAAAAAAAA"
#define ANON_2 "anon-__________________-_-w"
/* Their credentials, signed with the secret of set_up. */
#define CREDENTIAL_1 "AbsAAAAAAAAAAAAAAAAAAAAApcQOFTfmfy9vNipAUfuzxA"
#define CREDENTIAL_2 "Abv__________________7_76qhGsJoEJ8TQV8aSE44pPg"
#define NOW_MS INT64_C(1790000000500)

static const str nobody = {NULL, 0};

/* A worker without sockets, and one exchange at a time whose client has disconnected: the answer
 * stays in the worker's body. */
struct bench {
    struct api api;
    struct api_worker worker;
    struct net net;
    struct net_worker nw;
    struct conn conn;
    struct exchange exchange;
    char block[8192];
};

static int set_up(void **state) {
    struct bench *b = mem_new(sizeof *b);
    b->api.keys = keys_new(STR(ADMIN_KEY));
    b->api.secret = STR("the secret, 0123456789");
    b->api.pass_key = STR("the pass key, 0123456789");
    b->api.users_key = STR(FIXTURE_KEY);
    b->api.users_auth = USERS_SIGNED;
    assert_true(api_worker_init(&b->worker, &b->api));
    b->nw.net = &b->net;
    b->nw.context = &b->worker;
    *state = b;
    return 0;
}

static void end_request(struct bench *b) {
    arena_reset(&b->exchange.arena);
    buf_deinit(&b->exchange.headers);
    b->exchange.headers = (struct buf){0};
    b->nw.exchange_count = 0;
    b->nw.free_exchanges = NULL;
    b->nw.free_exchange_count = 0;
    buf_clear(&b->nw.body);
}

static int tear_down(void **state) {
    struct bench *b = *state;
    end_request(b);
    buf_deinit(&b->nw.body);
    api_worker_deinit(&b->worker);
    keys_free(b->api.keys);
    mem_free(b);
    return 0;
}

/* `headers` are whole lines, each with its end. */
static struct exchange *ask(struct bench *b, enum users_auth auth, const char *query,
                            const char *headers) {
    struct exchange *x = &b->exchange;
    end_request(b);
    memset(x, 0, sizeof *x);
    b->api.users_auth = auth;
    b->nw.exchange_count = 1;
    x->net = &b->nw;
    http1_init(&x->parser);
    int len = snprintf(b->block, sizeof b->block, "GET /x%s HTTP/1.1\r\nHost: x\r\n%s\r\n", query,
                       headers);
    assert_true(len > 0 && (size_t)len < sizeof b->block);
    assert_int_equal(http1_feed(&x->parser, b->block, (size_t)len), HTTP1_DONE);
    x->request = http1_request(&x->parser, b->block);
    assert_int_equal(users_find_key(&b->api, x, false), ERR_OK); /* as the router does */
    return x;
}

/* The code of the answer; "" when there was none. */
static str answered(const struct bench *b) {
    if (b->nw.exchange_count > 0) {
        assert_int_equal(b->nw.body.len, 0);
        return STR("");
    }
    str body = buf_str(&b->nw.body);
    static const char before[] = "\"code\":\"";
    const char *at = memmem(body.at, body.len, before, sizeof before - 1);
    assert_non_null(at);
    str rest = str_skip(body, (size_t)(at - body.at) + sizeof before - 1);
    str code;
    assert_true(str_split(&rest, '"', &code));
    return code;
}

#define assert_str(a, b) assert_true(str_eq((a), STR(b)))

static void assert_identified(struct bench *b, enum users_auth auth, const char *headers, str named,
                              const char *user, int lane) {
    struct requester a;
    struct exchange *x = ask(b, auth, "", headers);
    assert_true(users_identify(&b->api, x, named, &a));
    assert_str(answered(b), "");
    assert_true(str_eq(a.user, str_of(user)));
    assert_int_equal(a.lane, lane);
    assert_false(a.fresh);
}

static void assert_not_identified(struct bench *b, enum users_auth auth, const char *headers,
                                  str named, const char *code) {
    struct requester a;
    struct exchange *x = ask(b, auth, "", headers);
    assert_false(users_identify(&b->api, x, named, &a));
    assert_true(str_eq(answered(b), str_of(code)));
}

/* ---- assertions ---- */

static const char *with_assertion(struct bench *b, const char *claims) {
    static char line[4096];
    struct buf token = {0};
    jwt_sign(b->worker.assertions, str_of(claims), &token);
    snprintf(line, sizeof line, "X-User-Assertion: %s\r\n", buf_cstr(&token));
    buf_deinit(&token);
    return line;
}

static void each_claim_is_held_to_its_rule(void **state) {
    struct bench *b = *state;
    static const struct {
        const char *claims;
        const char *user; /* NULL: refused */
        int lane;
        const char *why;
    } rows[] = {
        {"{\"sub\":\"u\"}", "u", -1, ""},
        {"{\"sub\":17}", "17", -1, ""},
        {"{\"sub\":-9223372036854775808}", "-9223372036854775808", -1, ""},
        {"{\"sub\":\"u\",\"lane\":0,\"aud\":[\"x\"]}", "u", 0, ""},
        {"{\"sub\":\"u\",\"lane\":15}", "u", 15, ""},
        {"{\"sub\":\"u\",\"exp\":1790000001}", "u", -1, ""},
        {"{\"sub\":\"u\",\"exp\":1790000000.501}", "u", -1, ""},
        {"{\"sub\":\"u\",\"nbf\":1790000000}", "u", -1, ""},
        {"{\"sub\":\"u\",\"nbf\":1790000000.5}", "u", -1, ""},
        {"{\"sub\":\"u\",\"exp\":1790000000}", NULL, 0, "expired"},
        {"{\"sub\":\"u\",\"exp\":1790000000.5}", NULL, 0, "expired"},
        {"{\"sub\":\"u\",\"exp\":0}", NULL, 0, "expired"},
        {"{\"sub\":\"u\",\"exp\":\"1990000000\"}", NULL, 0, "exp must"},
        {"{\"sub\":\"u\",\"exp\":null}", NULL, 0, "exp must"},
        {"{\"sub\":\"u\",\"nbf\":1790000001}", NULL, 0, "not valid yet"},
        {"{\"sub\":\"u\",\"nbf\":\"0\"}", NULL, 0, "nbf must"},
        {"{\"sub\":\"u\",\"lane\":16}", NULL, 0, "lane must"},
        {"{\"sub\":\"u\",\"lane\":-1}", NULL, 0, "lane must"},
        {"{\"sub\":\"u\",\"lane\":4294967296}", NULL, 0, "lane must"},
        {"{\"sub\":\"u\",\"lane\":\"1\"}", NULL, 0, "lane must"},
        {"{\"sub\":\"u\",\"lane\":1.0}", NULL, 0, "lane must"},
        {"{}", NULL, 0, "sub must"},
        {"{\"sub\":\"\"}", NULL, 0, "sub must"},
        {"{\"sub\":null}", NULL, 0, "sub must"},
        {"{\"sub\":1.5}", NULL, 0, "sub must"},
        {"{\"sub\":\"a\\nb\"}", NULL, 0, "sub must"},
        {"{\"sub\":\"12345678901234567890123456789012345678901234567890123456789012345\"}", NULL, 0,
         "sub must"},
        {"{\"sub\":\"u\",\"sub\":\"v\"}", NULL, 0, "object"},
        {"[\"u\"]", NULL, 0, "object"},
        {"\"u\"", NULL, 0, "object"},
        {"", NULL, 0, "object"},
        {"{\"sub\":\"u\"", NULL, 0, "object"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct arena arena = {0};
        struct buf token = {0};
        struct requester a = {0};
        struct json_problem problem = {.err = ERR_OK};
        jwt_sign(b->worker.assertions, str_of(rows[i].claims), &token);
        bool ok =
            assertion_read(b->worker.assertions, buf_str(&token), NOW_MS, &arena, &a, &problem);
        assert_int_equal(ok, rows[i].user != NULL);
        if (ok) {
            assert_true(str_eq(a.user, str_of(rows[i].user)));
            assert_int_equal(a.lane, rows[i].lane);
        } else {
            assert_int_equal(problem.err, ERR_ASSERTION_INVALID);
            assert_non_null(strstr(problem.detail, rows[i].why));
        }
        buf_deinit(&token);
        arena_reset(&arena);
    }
}

/* Signed with the shop's key, each by another program: only the header differs. */
static void
a_header_that_is_not_plain_hs256_is_refused_though_the_signature_is_right(void **state) {
    struct bench *b = *state;
    static const struct {
        const char *header; /* with {"sub":"u"} and FIXTURE_KEY */
        const char *text;
        bool ok;
    } rows[] = {
        {"{\"alg\":\"HS256\"}",
         "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1In0.EGzf8Hev0_RZKHVXOWqYzkWfmAY7XZ1vQ"
         "YslgPymBBk",
         true},
        {"{\"kid\":\"k1\",\"alg\":\"HS256\",\"typ\":\"JWT\"}",
         "eyJraWQiOiJrMSIsImFsZyI6IkhTMjU2IiwidHlwIjoiSldUIn0.eyJzdWIiOiJ1In0.3a"
         "J8JJLs5TGnl8aWi92Wzj1gK0g-VxWGoRw4wsRsO9E",
         true},
        {"{\"alg\":\"none\"}",
         "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1In0.WHARwNBT0cpZ2FuZZj7D7eoRAavkuYQUSU"
         "3tFQUn6EI",
         false},
        {"{\"alg\":\"hs256\"}",
         "eyJhbGciOiJoczI1NiJ9.eyJzdWIiOiJ1In0.3JGIXstAvH7fTJI_GsSpbMN8omiCdEbaJ"
         "Zu4uRcCONE",
         false},
        {"{\"alg\":\"HS512\"}",
         "eyJhbGciOiJIUzUxMiJ9.eyJzdWIiOiJ1In0.wCWa9gw8exja7rknGs9BwA9hdCvMfe3xC"
         "xiogyP42yM",
         false},
        {"{\"alg\":\"RS256\"}",
         "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1In0.pKVr0_AdJVoA0SSO3cRGW9NKwxb3SIjaI"
         "SdTpkiPwzU",
         false},
        {"{\"alg\":[\"HS256\"]}",
         "eyJhbGciOlsiSFMyNTYiXX0.eyJzdWIiOiJ1In0.17Hasj4HIpYd9n_TB8FtVPSM6MeXp4"
         "gmwhaPr9Hx8vA",
         false},
        {"{\"typ\":\"JWT\"}",
         "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJ1In0.mCKPt7PSwyGfrgPNSryAJlgj0dRGsQjZsiR"
         "3rEnh4l0",
         false},
        {"{\"alg\":\"none\",\"alg\":\"HS256\"}",
         "eyJhbGciOiJub25lIiwiYWxnIjoiSFMyNTYifQ.eyJzdWIiOiJ1In0.K2Kmj9R3bBxp5Sr"
         "vTOseI9wiJvLkVLGOLKxs93SalI0",
         false},
        {"{\"alg\":\"HS256\",\"crit\":[\"exp\"]}",
         "eyJhbGciOiJIUzI1NiIsImNyaXQiOlsiZXhwIl19.eyJzdWIiOiJ1In0.TseiNpFAZSH0U"
         "20oYHjXU_ki8MGAr5jCGFBvf8L6HaM",
         false},
        {"[\"HS256\"]",
         "WyJIUzI1NiJd.eyJzdWIiOiJ1In0.5mM8wTCP9nT7w1KqmITon5XSfcfZFeyA-KaIpDtqp"
         "J4",
         false},
        {"", ".eyJzdWIiOiJ1In0.bDqHpcHeI19wynrwmnGGJB-9PPAnk-g4yKn181pEvjY", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct arena arena = {0};
        struct requester a = {0};
        struct json_problem problem = {.err = ERR_OK};
        bool ok = assertion_read(b->worker.assertions, str_of(rows[i].text), NOW_MS, &arena, &a,
                                 &problem);
        assert_int_equal(ok, rows[i].ok);
        if (!ok) assert_non_null(strstr(problem.detail, "alg"));
        arena_reset(&arena);
    }
}

/* ---- identification ---- */

static void trusted_believes_the_name_and_needs_it(void **state) {
    struct bench *b = *state;
    assert_identified(b, USERS_TRUSTED, "", STR("user-1"), "user-1", -1);
    assert_identified(b, USERS_TRUSTED, "Cookie: admitone_user=" CREDENTIAL_1 "\r\n", STR("user-1"),
                      "user-1", -1);
    assert_not_identified(b, USERS_TRUSTED, "", nobody, "invalid_field");
    assert_not_identified(b, USERS_TRUSTED, with_assertion(b, "{\"sub\":\"u\"}"), nobody,
                          "invalid_field");
    /* A browser's page of this server needs none, and the user is known by the cookie then. */
    assert_identified(b, USERS_TRUSTED, "Cookie: admitone_user=" CREDENTIAL_2 "\r\n", nobody,
                      ANON_2, -1);
    static const struct {
        const char *headers;
        bool is_own;
    } rows[] = {
        {"Sec-Fetch-Site: same-origin\r\n", true},
        {"Sec-Fetch-Site: same-origin\r\nOrigin: https://x\r\n", true},
        {"Origin: http://x\r\n", true},
        {"Origin: http://x:80\r\n", false},
        {"Origin: null\r\n", false},
        {"Sec-Fetch-Site: same-site\r\nOrigin: http://x\r\n", false},
        {"Sec-Fetch-Site: cross-site\r\n", false},
        {"Sec-Fetch-Site: none\r\n", false},
        {"Cookie: admitone_user=" ANON_1 "\r\n", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct requester a;
        struct exchange *x = ask(b, USERS_TRUSTED, "", rows[i].headers);
        assert_int_equal(users_identify(&b->api, x, nobody, &a), rows[i].is_own);
        if (rows[i].is_own)
            assert_true(a.fresh && a.is_anonymous && str_starts(a.user, STR("anon-")));
        else
            assert_str(answered(b), "invalid_field");
    }
}

static void mode_signed_trusts_assertions_of_the_shop_only(void **state) {
    struct bench *b = *state;
    const char *word = with_assertion(b, "{\"sub\":\"u\",\"lane\":3}");
    assert_identified(b, USERS_SIGNED, word, nobody, "u", 3);
    assert_identified(b, USERS_SIGNED, word, STR("u"), "u", 3);
    assert_not_identified(b, USERS_SIGNED, word, STR("v"), "user_mismatch");
    assert_not_identified(b, USERS_SIGNED, "", STR("u"), "assertion_required");
    assert_not_identified(b, USERS_SIGNED, "X-User-Assertion: \r\n", STR("u"),
                          "assertion_required");
    assert_not_identified(b, USERS_SIGNED, "X-User-Assertion: a.b.c\r\n", STR("u"),
                          "assertion_invalid");
    word = with_assertion(b, "{\"sub\":\"u\",\"exp\":1600000000}");
    assert_not_identified(b, USERS_SIGNED, word, nobody, "assertion_invalid");
    assert_not_identified(b, USERS_SIGNED, "Cookie: admitone_user=" CREDENTIAL_1 "\r\n", nobody,
                          "assertion_required");
}

static void the_admin_key_is_believed_in_every_mode_and_needs_a_name(void **state) {
    struct bench *b = *state;
    for (enum users_auth auth = USERS_TRUSTED; auth <= USERS_ANONYMOUS; auth++) {
        struct requester a;
        struct exchange *x = ask(b, auth, "", "Authorization: bearer " ADMIN_KEY "\r\n");
        assert_true(users_identify(&b->api, x, STR("user-1"), &a));
        assert_true(a.shop && !a.fresh && a.lane == -1);
        assert_str(a.user, "user-1");
        assert_not_identified(b, auth, "Authorization: Bearer " ADMIN_KEY "\r\n", nobody,
                              "invalid_field");
    }
    static const char *const wrong[] = {"",
                                        "Authorization: Bearer\r\n",
                                        "Authorization: Bearer the admin key, 0123456788\r\n",
                                        "Authorization: Bearer " ADMIN_KEY "9\r\n",
                                        "Authorization: Basic " ADMIN_KEY "\r\n",
                                        "X-Queue-Token: " ADMIN_KEY "\r\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(users_is_shop(&b->api, ask(b, USERS_TRUSTED, "", wrong[i])));
        assert_not_identified(b, USERS_SIGNED, wrong[i], STR("user-1"), "assertion_required");
    }
}

static void an_anonymous_user_is_identified_by_the_cookie(void **state) {
    struct bench *b = *state;
    assert_identified(b, USERS_ANONYMOUS, "Cookie: admitone_user=" CREDENTIAL_1 "\r\n", nobody,
                      ANON_1, -1);
    assert_identified(b, USERS_ANONYMOUS, "Cookie: a=b; admitone_user=" CREDENTIAL_2 "; c=d\r\n",
                      STR(ANON_2), ANON_2, -1);
    assert_not_identified(b, USERS_ANONYMOUS, "Cookie: admitone_user=" CREDENTIAL_1 "\r\n",
                          STR(ANON_2), "user_mismatch");
    assert_not_identified(b, USERS_ANONYMOUS, "", STR("user-1"), "user_mismatch");
    assert_not_identified(b, USERS_ANONYMOUS, "Cookie: admitone_user=user-1\r\n", STR("user-1"),
                          "user_mismatch");
    assert_not_identified(b, USERS_ANONYMOUS, "Cookie: admitone_user=" ANON_1 "\r\n", STR(ANON_1),
                          "user_mismatch");
}

static void without_our_cookie_a_new_user_is_created(void **state) {
    struct bench *b = *state;
    static const char *const cookies[] = {
        "",
        "Cookie: admitone_user\r\n",
        "Cookie: admitone_user=\r\n",
        "Cookie: admitone_user=user-1\r\n",
        "Cookie: admitone_user=" ANON_1 "\r\n", /* the public id */
        "Cookie: admitone_user=" CREDENTIAL_1 "A\r\n",
        "Cookie: admitone_user=AbsAAAAAAAAAAAAAAAAAAAAApcQOFTfmfy9vNipAUfuzx\r\n",
        "Cookie: admitone_user=AbsAAAAAAAAAAAAAAAAAAAAApcQOFTfmfy9vNipAUfuzxB\r\n",
        "Cookie: admitone_user=AbsAAAAAAAAAAAAAAAAAAAABpcQOFTfmfy9vNipAUfuzxA\r\n",
        "Cookie: Admitone_user=" CREDENTIAL_1 "\r\n",
        "Cookie: xadmitone_user=" CREDENTIAL_1 "\r\n",
    };
    char seen[16][32];
    for (size_t i = 0; i < sizeof cookies / sizeof cookies[0]; i++) {
        struct requester a;
        struct exchange *x = ask(b, USERS_ANONYMOUS, "", cookies[i]);
        assert_true(users_identify(&b->api, x, nobody, &a));
        assert_true(a.fresh && !a.shop && a.lane == -1);
        assert_int_equal(a.user.len, 27);
        assert_true(str_starts(a.user, STR("anon-")));
        assert_true(str_copy(a.user, seen[i], sizeof seen[i]));
        for (size_t k = 0; k < i; k++) assert_string_not_equal(seen[i], seen[k]);
        users_set_cookie(x, &a);
        char cookie[128];
        char expected[256];
        char credential[CREDENTIAL_TEXT_BYTES];
        credential_sign(b->worker.tokens, a.anonymous, credential);
        snprintf(expected, sizeof expected,
                 "Set-Cookie: admitone_user=%.*s; Path=/; HttpOnly; SameSite=Lax; "
                 "Max-Age=31536000\r\n",
                 CREDENTIAL_TEXT_BYTES, credential);
        assert_true(str_eq(buf_str(&x->headers), str_of(expected)));
        /* The user is known by it from then on. */
        snprintf(cookie, sizeof cookie, "Cookie: admitone_user=%.*s\r\n", CREDENTIAL_TEXT_BYTES,
                 credential);
        x = ask(b, USERS_ANONYMOUS, "", cookie);
        assert_true(users_identify(&b->api, x, nobody, &a));
        assert_true(!a.fresh && str_eq(a.user, str_of(seen[i])));
        users_set_cookie(x, &a);
        assert_int_equal(x->headers.len, 0);
    }
}

/* Only a trusted proxy is believed that its client came over TLS. */
static void the_cookie_is_secure_where_the_client_is(void **state) {
    struct bench *b = *state;
    static const struct {
        const char *peer;
        const char *header;
        bool secure;
    } rows[] = {
        {"192.0.2.1", "X-Forwarded-Proto: https\r\n", true},
        {"192.0.2.1", "X-Forwarded-Proto: HTTPS , http\r\n", true},
        {"192.0.2.1", "X-Forwarded-Proto: http, https\r\n", false},
        {"192.0.2.1", "X-Forwarded-Proto: http\r\n", false},
        {"192.0.2.1", "X-Forwarded-Proto: httpsx\r\n", false},
        {"192.0.2.1", "", false},
        {"198.51.100.1", "X-Forwarded-Proto: https\r\n", false},
    };
    assert_true(networks_parse(STR("192.0.2.0/24"), &b->net.options.trusted_proxies));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct requester a;
        struct exchange *x = ask(b, USERS_ANONYMOUS, "", rows[i].header);
        assert_true(address_parse(str_of(rows[i].peer), &b->conn.peer));
        x->conn = &b->conn;
        exchange_begin(x);
        x->conn = NULL;
        assert_int_equal(exchange_secure(x), rows[i].secure);
        assert_true(users_identify(&b->api, x, nobody, &a));
        users_set_cookie(x, &a);
        assert_int_equal(memmem(x->headers.bytes, x->headers.len, "; Secure\r\n", 10) != NULL,
                         rows[i].secure);
    }
}

/* ---- with an entry token ---- */

static void assert_judged(struct bench *b, enum users_auth auth, const char *query,
                          const char *headers, str named, const char *token_user, enum err want) {
    struct exchange *x = ask(b, auth, query, headers);
    enum err got =
        users_disagree(&b->api, x, named, token_user_hash(b->worker.tokens, str_of(token_user)));
    assert_int_equal(got, want);
    assert_str(answered(b), "");
}

static void a_token_is_good_for_its_own_user_only(void **state) {
    struct bench *b = *state;
    for (enum users_auth auth = USERS_TRUSTED; auth <= USERS_ANONYMOUS; auth++) {
        assert_judged(b, auth, "", "", nobody, "u", ERR_OK);
        assert_judged(b, auth, "?userId=u", "", STR("u"), "u", ERR_OK);
        assert_judged(b, auth, "?userId=%75", "", nobody, "u", ERR_OK);
        assert_judged(b, auth, "?userId=v", "", nobody, "u", ERR_USER_MISMATCH);
        assert_judged(b, auth, "?userId=", "", nobody, "u", ERR_USER_MISMATCH);
        assert_judged(b, auth, "?userId=u", "", STR("v"), "u", ERR_USER_MISMATCH);
        assert_judged(b, auth, "?userId=%ff", "", nobody, "u", ERR_USER_MISMATCH);
    }
}

static void what_proves_another_user_beside_the_token_is_refused(void **state) {
    struct bench *b = *state;
    const char *word = with_assertion(b, "{\"sub\":\"u\"}");
    assert_judged(b, USERS_SIGNED, "", word, nobody, "u", ERR_OK);
    assert_judged(b, USERS_SIGNED, "", word, nobody, "v", ERR_USER_MISMATCH);
    assert_judged(b, USERS_TRUSTED, "", word, nobody, "v", ERR_OK);
    word = with_assertion(b, "{\"sub\":\"u\",\"exp\":1600000000}");
    assert_judged(b, USERS_SIGNED, "", word, nobody, "u", ERR_ASSERTION_INVALID);

    const char *cookie = "Cookie: admitone_user=" CREDENTIAL_1 "\r\n";
    assert_judged(b, USERS_ANONYMOUS, "", cookie, nobody, ANON_1, ERR_OK);
    assert_judged(b, USERS_ANONYMOUS, "", cookie, nobody, ANON_2, ERR_USER_MISMATCH);
    assert_judged(b, USERS_ANONYMOUS, "", "Cookie: admitone_user=" ANON_1 "\r\n", nobody, ANON_2,
                  ERR_OK);
    assert_judged(b, USERS_TRUSTED, "", cookie, nobody, ANON_2, ERR_OK);
}

/* ---- the parts ---- */

static bool is_not_bad(void *to, str value) {
    (void)to;
    return !str_eq(value, STR("bad"));
}

static void a_cookie_is_found_by_its_whole_name(void **state) {
    struct bench *b = *state;
    static const struct {
        const char *header;
        const char *value; /* NULL: there is none */
    } rows[] = {
        {"", NULL},
        {"Cookie: \r\n", NULL},
        {"Cookie: name=\r\n", ""},
        {"Cookie: name=one\r\n", "one"},
        {"Cookie: name=a=b\r\n", "a=b"},
        {"Cookie: other=name; name=one;name=two\r\n", "one"},
        {"Cookie: ;; ;name=one; \r\n", "one"},
        {"Cookie: name; names=x; aname=y; NAME=z\r\n", NULL},
        {"Cookie: other=\"; name=one\r\n", "one"},
        {"Cookie: name=bad; name=one\r\n", "one"},
        {"Cookie: name=bad\r\n", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct exchange *x = ask(b, USERS_TRUSTED, "", rows[i].header);
        str value = cookie_value(x, STR("name"), is_not_bad, NULL);
        assert_int_equal(value.at == NULL, rows[i].value == NULL);
        assert_true(str_eq(value, str_of(rows[i].value)));
    }
}

static void a_user_is_a_short_text_or_a_whole_number(void **state) {
    struct bench *b = *state;
    static const struct {
        const char *json;
        const char *user;
    } rows[] = {
        {"\"u\"", "u"},
        {"\"\\uc870 \\u00e9\"", "\xec\xa1\xb0 \xc3\xa9"},
        {"\"1234567890123456789012345678901234567890123456789012345678901234\"",
         "1234567890123456789012345678901234567890123456789012345678901234"},
        {"0", "0"},
        {"-7", "-7"},
        {"9223372036854775807", "9223372036854775807"},
        {"\"12345678901234567890123456789012345678901234567890123456789012345\"", NULL},
        {"\"\"", NULL},
        {"\"a\\tb\"", NULL},
        {"\"\\u007f\"", NULL},
        {"null", NULL},
        {"true", NULL},
        {"1.0", NULL},
        {"[1]", NULL},
        {"{}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct exchange *x = ask(b, USERS_TRUSTED, "", "");
        struct json_problem problem = {.err = ERR_OK};
        json_t *value = json_loads(rows[i].json, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        str user = {NULL, 0};
        bool ok = user_from_json(x, value, &user, &problem);
        json_decref(value);
        assert_int_equal(ok, rows[i].user != NULL);
        assert_true(str_eq(user, str_of(rows[i].user)));
        assert_int_equal(problem.err, ok ? ERR_OK : ERR_INVALID_FIELD);
        if (!ok) assert_non_null(strstr(problem.detail, "userId must"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_claim_is_held_to_its_rule),
        TEST(a_header_that_is_not_plain_hs256_is_refused_though_the_signature_is_right),
        TEST(trusted_believes_the_name_and_needs_it),
        TEST(mode_signed_trusts_assertions_of_the_shop_only),
        TEST(the_admin_key_is_believed_in_every_mode_and_needs_a_name),
        TEST(an_anonymous_user_is_identified_by_the_cookie),
        TEST(without_our_cookie_a_new_user_is_created),
        TEST(the_cookie_is_secure_where_the_client_is),
        TEST(a_token_is_good_for_its_own_user_only),
        TEST(what_proves_another_user_beside_the_token_is_refused),
        TEST(a_cookie_is_found_by_its_whole_name),
        TEST(a_user_is_a_short_text_or_a_whole_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
