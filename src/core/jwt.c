/* Signing and verifying of JSON Web Tokens. */
#include "core/jwt.h"

#include "base/base64url.h"
#include "base/mem.h"
#include "core/hmac.h"

#define SIGNATURE_CHARS BASE64URL_CHARS(HMAC_BYTES)

struct jwt_box {
    struct hmac *hmac;
};

struct jwt_box *jwt_box_new(str key) {
    struct jwt_box *box = mem_new(sizeof *box);
    box->hmac = hmac_new(key);
    if (box->hmac != NULL) return box;
    mem_free(box);
    return NULL;
}

void jwt_box_free(struct jwt_box *box) {
    if (box == NULL) return;
    hmac_free(box->hmac);
    mem_free(box);
}

static void add_encoded(struct buf *out, const void *bytes, size_t len) {
    base64url_encode(bytes, len, buf_reserve(out, BASE64URL_CHARS(len)));
    out->len += BASE64URL_CHARS(len);
}

void jwt_sign(struct jwt_box *box, str payload_json, struct buf *out) {
    static const char header[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
    unsigned char mac[HMAC_BYTES];
    size_t start = out->len;
    add_encoded(out, header, sizeof header - 1);
    buf_add_char(out, '.');
    add_encoded(out, payload_json.at, payload_json.len);
    hmac_of(box->hmac, STR(""), str_skip(buf_str(out), start), mac);
    buf_add_char(out, '.');
    add_encoded(out, mac, sizeof mac);
}

static bool is_signed(struct jwt_box *box, str signed_part, str signature) {
    unsigned char given[HMAC_BYTES];
    unsigned char mac[HMAC_BYTES];
    if (signature.len != SIGNATURE_CHARS || !base64url_decode(signature, given)) return false;
    hmac_of(box->hmac, STR(""), signed_part, mac);
    return hmac_eq(mac, given, sizeof mac);
}

static bool add_decoded(struct buf *out, str text) {
    if (!base64url_decode(text, buf_reserve(out, text.len + 1))) return false;
    out->len += BASE64URL_BYTES(text.len);
    return true;
}

bool jwt_verify(struct jwt_box *box, str text, struct buf *header, struct buf *payload) {
    str rest = text;
    str parts[3];
    buf_clear(header);
    buf_clear(payload);
    if (text.len > JWT_TEXT_BYTES_MAX) return false;
    for (int i = 0; i < 3; i++)
        if (!str_split(&rest, '.', &parts[i])) return false;
    if (rest.at != NULL) return false;
    str signed_part = {text.at, parts[0].len + 1 + parts[1].len};
    if (!is_signed(box, signed_part, parts[2])) return false;
    if (add_decoded(header, parts[0]) && add_decoded(payload, parts[1])) return true;
    buf_clear(header);
    buf_clear(payload);
    return false;
}
