
/*
 * Accept-Encoding against the ABNF of RFC 9110 as regular expressions.
 *
 * The input is one field line per "\n".
 */


#include <regex.h>
#include <strings.h>

#include "fuzz.h"
#include "zmap_accept.h"


/* RFC 9110, 5.6.2, 5.6.3 and 12.4.2 */

#define TOKEN   "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
#define OWS     "[ \t]*"
#define QVALUE  "(0(\\.[0-9]{0,3})?|1(\\.0{0,3})?)"


/* any byte that neither divides members nor belongs into one */
#define FUZZ_JUNK  '\x01'


static const char  *const fuzz_codings[] = {
    [ZMAP_CODING_IDENTITY] = "identity",
    [ZMAP_CODING_ZSTD]     = "zstd",
    [ZMAP_CODING_ANY]      = "*"
};


static regex_t  fuzz_token;
static regex_t  fuzz_member;


static void
fuzz_compile(void)
{
    static int  compiled;

    if (compiled) {
        return;
    }

    compiled = 1;

    FUZZ_CHECK(regcomp(&fuzz_token, "^" TOKEN, REG_EXTENDED) == 0);
    FUZZ_CHECK(regcomp(&fuzz_member,
                       "^" TOKEN "(" OWS ";" OWS "q=" QVALUE ")?$",
                       REG_EXTENDED|REG_ICASE)
               == 0);
}


/*
 * A string of the line in which commas and quotes of quoted strings, and
 * NULs, are junk
 */

static char *
fuzz_unquote(const uint8_t *line, size_t size)
{
    char    *text;
    size_t   i;

    enum { outside, inside, escaped } at;

    text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);

    at = outside;

    for (i = 0; i < size; i++) {
        text[i] = line[i] ? (char) line[i] : FUZZ_JUNK;

        switch (at) {

        case outside:
            at = line[i] == '"' ? inside : outside;
            break;

        case inside:
            text[i] = FUZZ_JUNK;
            at = line[i] == '"' ? outside : line[i] == '\\' ? escaped : inside;
            break;

        case escaped:
            text[i] = FUZZ_JUNK;
            at = inside;
            break;
        }
    }

    text[size] = '\0';

    return text;
}


static int
fuzz_weight(const char *member)
{
    regmatch_t  match[3];

    if (regexec(&fuzz_member, member, 3, match, 0) != 0) {
        return 0;
    }

    if (match[2].rm_so == -1) {
        return 1000;
    }

    return (int) (strtod(member + match[2].rm_so, NULL) * 1000 + 0.5);
}


static void
fuzz_list(char *member, int weights[])
{
    int         i, weight;
    size_t      len;
    regmatch_t  name;

    member += strspn(member, " \t");
    len = strlen(member);

    while (len > 0 && strchr(" \t", member[len - 1])) {
        member[--len] = '\0';
    }

    if (regexec(&fuzz_token, member, 1, &name, 0) != 0) {
        return;
    }

    for (i = 0; i < ZMAP_CODINGS; i++) {

        if ((size_t) name.rm_eo != strlen(fuzz_codings[i])
            || strncasecmp(member, fuzz_codings[i], (size_t) name.rm_eo) != 0)
        {
            continue;
        }

        weight = fuzz_weight(member);

        if (weights[i] == -1 || weights[i] > weight) {
            weights[i] = weight;
        }
    }
}


static void
fuzz_line(const uint8_t *line, size_t size, int weights[])
{
    char  *text, *rest, *member;

    text = fuzz_unquote(line, size);
    rest = text;

    while ((member = strsep(&rest, ",")) != NULL) {
        fuzz_list(member, weights);
    }

    free(text);
}


/* RFC 9110, 12.5.3: whether the client excluded what has these weights */

static int
fuzz_excluded(int own, int any)
{
    return own == 0 || (own == -1 && any == 0);
}


static zmap_serve_e
fuzz_choice(const int weights[])
{
    int  identity, zstd, any, zstd_wanted, identity_wanted_more;

    identity = weights[ZMAP_CODING_IDENTITY];
    zstd = weights[ZMAP_CODING_ZSTD];
    any = weights[ZMAP_CODING_ANY];

    if (fuzz_excluded(identity, any)) {
        return fuzz_excluded(zstd, any) || (zstd == -1 && any == -1)
               ? ZMAP_SERVE_NONE : ZMAP_SERVE_ZSTD;
    }

    zstd_wanted = zstd != -1 && zstd != 0;
    identity_wanted_more = identity != -1 && identity > zstd;

    return zstd_wanted && !identity_wanted_more ? ZMAP_SERVE_ZSTD
                                                : ZMAP_SERVE_IDENTITY;
}


static void
fuzz_compare(const zmap_accept_t *accept, const int weights[])
{
    int  i;

    for (i = 0; i < ZMAP_CODINGS; i++) {
        FUZZ_CHECK(accept->weight[i] == weights[i]);
    }

    FUZZ_CHECK(zmap_accept_choose(accept) == fuzz_choice(weights));
    FUZZ_CHECK((zmap_accept_identity(accept) == 0)
               == fuzz_excluded(weights[ZMAP_CODING_IDENTITY],
                                weights[ZMAP_CODING_ANY]));
}


int
LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    int             weights[ZMAP_CODINGS] = { -1, -1, -1 };
    size_t          len;
    uint8_t        *line;
    const uint8_t  *end;
    zmap_accept_t   accept;

    fuzz_compile();
    zmap_accept_init(&accept);
    fuzz_compare(&accept, weights);

    while (size > 0) {
        end = memchr(input, '\n', size);
        len = end ? (size_t) (end - input) : size;

        line = fuzz_copy(input, len);
        zmap_accept_line(&accept, line, len);
        fuzz_line(line, len, weights);
        free(line);

        fuzz_compare(&accept, weights);

        len += end != NULL;
        input += len;
        size -= len;
    }

    return 0;
}
