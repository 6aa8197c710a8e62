
/*
 * Parses Accept-Encoding and decides which representation to send.
 */


#include "zmap_accept.h"


static const uint8_t *zmap_accept_member_end(const uint8_t *p,
    const uint8_t *last);
static void zmap_accept_member(zmap_accept_t *accept, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *zmap_accept_token_end(const uint8_t *p,
    const uint8_t *last);
static int zmap_accept_tchar(uint8_t c);
static zmap_coding_e zmap_accept_coding(const uint8_t *name, size_t len);
static int zmap_accept_equal(const uint8_t *name, const char *lower,
    size_t len);
static int16_t zmap_accept_weight(const uint8_t *p, const uint8_t *last);
static int16_t zmap_accept_qvalue(const uint8_t *p, const uint8_t *last);
static const uint8_t *zmap_accept_skip_ows(const uint8_t *p,
    const uint8_t *last);
static const uint8_t *zmap_accept_trim_ows(const uint8_t *p,
    const uint8_t *last);
static int zmap_accept_ows(uint8_t c);


void
zmap_accept_init(zmap_accept_t *accept)
{
    size_t  i;

    for (i = 0; i < ZMAP_CODINGS; i++) {
        accept->weight[i] = ZMAP_WEIGHT_UNSET;
    }
}


void
zmap_accept_line(zmap_accept_t *accept, const uint8_t *value, size_t len)
{
    const uint8_t  *p, *last, *end;

    if (len == 0) {
        return;
    }

    p = value;
    last = value + len;

    for ( ;; ) {
        end = zmap_accept_member_end(p, last);

        zmap_accept_member(accept, p, end);

        if (end == last) {
            return;
        }

        p = end + 1;
    }
}


zmap_serve_e
zmap_accept_choose(const zmap_accept_t *accept)
{
    int16_t  zstd;

    zstd = accept->weight[ZMAP_CODING_ZSTD];

    if (zstd > 0 && zstd >= accept->weight[ZMAP_CODING_IDENTITY]) {
        return ZMAP_SERVE_ZSTD;
    }

    if (zmap_accept_identity(accept)) {
        return ZMAP_SERVE_IDENTITY;
    }

    if (zstd == ZMAP_WEIGHT_UNSET && accept->weight[ZMAP_CODING_ANY] > 0) {
        return ZMAP_SERVE_ZSTD;
    }

    return ZMAP_SERVE_NONE;
}


int
zmap_accept_identity(const zmap_accept_t *accept)
{
    int16_t  identity;

    identity = accept->weight[ZMAP_CODING_IDENTITY];

    if (identity == ZMAP_WEIGHT_UNSET) {
        return accept->weight[ZMAP_CODING_ANY] != 0;
    }

    return identity != 0;
}


/*
 * A comma inside a quoted string (RFC 9110, 5.6.4) ends no member: what
 * follows it is still text of a member that is refused.
 */

static const uint8_t *
zmap_accept_member_end(const uint8_t *p, const uint8_t *last)
{
    int  quoted;

    quoted = 0;

    for ( /* void */ ; p < last; p++) {

        if (*p == '"') {
            quoted = !quoted;

        } else if (*p == '\\' && quoted && last - p > 1) {
            p++;

        } else if (*p == ',' && !quoted) {
            return p;
        }
    }

    return last;
}


static void
zmap_accept_member(zmap_accept_t *accept, const uint8_t *p,
    const uint8_t *last)
{
    int16_t         weight, *slot;
    zmap_coding_e   coding;
    const uint8_t  *end;

    p = zmap_accept_skip_ows(p, last);
    last = zmap_accept_trim_ows(p, last);
    end = zmap_accept_token_end(p, last);

    coding = zmap_accept_coding(p, (size_t) (end - p));

    if (coding == ZMAP_CODINGS) {
        return;
    }

    weight = zmap_accept_weight(end, last);
    slot = &accept->weight[coding];

    if (*slot == ZMAP_WEIGHT_UNSET || weight < *slot) {
        *slot = weight;
    }
}


static const uint8_t *
zmap_accept_token_end(const uint8_t *p, const uint8_t *last)
{
    while (p < last && zmap_accept_tchar(*p)) {
        p++;
    }

    return p;
}


/* RFC 9110, 5.6.2: the visible US-ASCII characters without delimiters */

static int
zmap_accept_tchar(uint8_t c)
{
    if (c <= ' ' || c >= 0x7f) {
        return 0;
    }

    switch (c) {

    case '"':
    case '(':
    case ')':
    case ',':
    case '/':
    case ':':
    case ';':
    case '<':
    case '=':
    case '>':
    case '?':
    case '@':
    case '[':
    case '\\':
    case ']':
    case '{':
    case '}':
        return 0;

    default:
        return 1;
    }
}


/* ZMAP_CODINGS: none that matters here */

static zmap_coding_e
zmap_accept_coding(const uint8_t *name, size_t len)
{
    if (len == 1 && name[0] == '*') {
        return ZMAP_CODING_ANY;
    }

    if (len == 4 && zmap_accept_equal(name, "zstd", 4)) {
        return ZMAP_CODING_ZSTD;
    }

    if (len == 8 && zmap_accept_equal(name, "identity", 8)) {
        return ZMAP_CODING_IDENTITY;
    }

    return ZMAP_CODINGS;
}


/* the letters in lower must be of lower case; only letters may be in it */

static int
zmap_accept_equal(const uint8_t *name, const char *lower, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        if ((name[i] | 0x20) != lower[i]) {
            return 0;
        }
    }

    return 1;
}


/*
 * RFC 9110, 12.4.2: weight = OWS ";" OWS "q=" qvalue, or nothing.  There is
 * no white space around "=".
 */

static int16_t
zmap_accept_weight(const uint8_t *p, const uint8_t *last)
{
    if (p == last) {
        return ZMAP_WEIGHT_MAX;
    }

    p = zmap_accept_skip_ows(p, last);

    if (p == last || *p != ';') {
        return 0;
    }

    p = zmap_accept_skip_ows(p + 1, last);

    if (last - p < 3 || (p[0] | 0x20) != 'q' || p[1] != '=') {
        return 0;
    }

    return zmap_accept_qvalue(p + 2, last);
}


/*
 * qvalue = ( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] ), so that "0."
 * and "1." are legal.  Not empty.
 */

static int16_t
zmap_accept_qvalue(const uint8_t *p, const uint8_t *last)
{
    int  weight, unit;

    if (*p != '0' && *p != '1') {
        return 0;
    }

    weight = (*p++ - '0') * ZMAP_WEIGHT_MAX;

    if (p == last) {
        return (int16_t) weight;
    }

    if (*p++ != '.' || last - p > 3) {
        return 0;
    }

    for (unit = ZMAP_WEIGHT_MAX / 10; p < last; p++, unit /= 10) {

        if (*p < '0' || *p > '9') {
            return 0;
        }

        weight += (*p - '0') * unit;
    }

    return (int16_t) (weight > ZMAP_WEIGHT_MAX ? 0 : weight);
}


static const uint8_t *
zmap_accept_skip_ows(const uint8_t *p, const uint8_t *last)
{
    while (p < last && zmap_accept_ows(*p)) {
        p++;
    }

    return p;
}


static const uint8_t *
zmap_accept_trim_ows(const uint8_t *p, const uint8_t *last)
{
    while (last > p && zmap_accept_ows(last[-1])) {
        last--;
    }

    return last;
}


static int
zmap_accept_ows(uint8_t c)
{
    return c == ' ' || c == '\t';
}
