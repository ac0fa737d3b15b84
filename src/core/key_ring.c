/* Keys with names and roles: their lines, and the comparison with a digest. */
#include "core/key_ring.h"

#include <assert.h>

#include "base/base64url.h"
#include "core/event.h"

#define DIGEST_WORD "sha256:"

#define KEY_ROLE_WORD(symbol, word) STR_INIT(word),
const str key_role_words[] = {KEY_ROLE_MAP(KEY_ROLE_WORD){NULL, 0}};
#undef KEY_ROLE_WORD

static_assert(KEY_TEXT_BYTES == sizeof KEY_PREFIX - 1 + BASE64URL_CHARS(KEY_RANDOM_BYTES),
              "the text has room for the prefix and the random bytes");

bool key_role_includes(enum key_role has, enum key_role needed) {
    return has == needed || has == KEY_ROLE_OWN ||
           (has == KEY_ROLE_OPERATE && needed == KEY_ROLE_READ);
}

bool key_name_ok(str name) {
    return str_is_name(name, KEY_NAME_BYTES_MAX) && !str_eq(name, STR("admin")) &&
           !str_eq(name, STR("demo"));
}

/* Cuts *rest behind its first word, which is empty at the end. */
static str key_line_word(str *rest) {
    size_t len = 0;
    *rest = str_trim(*rest);
    while (len < rest->len && rest->at[len] != ' ' && rest->at[len] != '\t') len++;
    str word = {rest->at, len};
    *rest = str_skip(*rest, len);
    return word;
}

static str without_return(str line) {
    if (line.len > 0 && line.at[line.len - 1] == '\r') line.len--;
    return line;
}

str key_line_name(str line) {
    line = without_return(line);
    str word = key_line_word(&line);
    return word.len > 0 && word.at[0] == '#' ? (str){"", 0} : word;
}

void key_line_add(struct buf *out, str name, enum key_role role,
                  const unsigned char digest[SHA256_BYTES]) {
    buf_add(out, name);
    buf_add_char(out, ' ');
    buf_add(out, key_role_words[role]);
    buf_add(out, STR(" " DIGEST_WORD));
    for (size_t i = 0; i < SHA256_BYTES; i++) buf_addf(out, "%02x", digest[i]);
    buf_add_char(out, '\n');
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool digest_parse(str word, unsigned char out[SHA256_BYTES]) {
    if (!str_starts(word, STR(DIGEST_WORD))) return false;
    str hex = str_skip(word, sizeof DIGEST_WORD - 1);
    if (hex.len != (size_t)2 * SHA256_BYTES) return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        int high = hex_digit(hex.at[2 * i]);
        int low = hex_digit(hex.at[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

static bool has_digest(const struct key_ring *ring, const unsigned char digest[SHA256_BYTES]) {
    return key_ring_find(ring, digest) != NULL;
}

/* Adds the key of a line, or says what is wrong with the line. */
static const char *key_line_parse(str line, struct key_ring *ring) {
    str rest = without_return(line);
    str name = key_line_word(&rest);
    str role_word = key_line_word(&rest);
    str digest_word = key_line_word(&rest);
    unsigned char digest[SHA256_BYTES];
    int role = role_word.len == 0 ? -1 : word_index(key_role_words, role_word);
    if (!key_name_ok(name))
        return "a name has up to 32 letters, digits, '_', '-' or '.', and is not admin or demo";
    if (role < 0) return "the role is not one of read, shop, operate, own";
    if (!digest_parse(digest_word, digest))
        return "the third word is not sha256: and the 64 hexadecimal digits of the key's SHA-256";
    if (str_trim(rest).len > 0) return "there is text behind the digest";
    if (key_ring_named(ring, name) != NULL) return "another line has the same name";
    if (has_digest(ring, digest)) return "another line has the same key";
    if (ring->count == KEY_RING_MAX) return "there are more than 100 keys";
    struct key *key = &ring->keys[ring->count++];
    bool fits = str_copy(name, key->name, sizeof key->name);
    assert(fits);
    key->role = (enum key_role)role;
    memcpy(key->digest, digest, sizeof digest);
    return NULL;
}

bool key_ring_parse(str text, struct key_ring *out, struct buf *why) {
    str line;
    *out = (struct key_ring){0};
    for (int number = 1; str_split(&text, '\n', &line); number++) {
        if (key_line_name(line).len == 0) continue;
        const char *wrong = key_line_parse(line, out);
        if (wrong == NULL) continue;
        buf_addf(why, "line %d: %s", number, wrong);
        return false;
    }
    return true;
}

const struct key *key_ring_named(const struct key_ring *ring, str name) {
    for (size_t i = 0; i < ring->count; i++)
        if (str_eq(str_of(ring->keys[i].name), name)) return &ring->keys[i];
    return NULL;
}

const struct key *key_ring_find(const struct key_ring *ring,
                                const unsigned char digest[SHA256_BYTES]) {
    size_t found = 0; /* the number of the key, plus 1 */
    str wanted = {(const char *)digest, SHA256_BYTES};
    for (size_t i = 0; i < ring->count; i++) {
        bool same = str_eq_secret(wanted, (str){(const char *)ring->keys[i].digest, SHA256_BYTES});
        found |= (size_t)same * (i + 1);
    }
    return found == 0 ? NULL : &ring->keys[found - 1];
}

void key_text_from(const unsigned char random[KEY_RANDOM_BYTES], char out[KEY_TEXT_BYTES]) {
    size_t prefix_len = sizeof KEY_PREFIX - 1;
    memcpy(out, KEY_PREFIX, prefix_len);
    base64url_encode(random, KEY_RANDOM_BYTES, out + prefix_len);
}
