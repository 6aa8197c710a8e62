
/*
 * Accept-Encoding: weights, wildcards, broken members, several lines.
 */


#include "unit.h"
#include "zmap_accept.h"


#define IDENTITY  ZMAP_SERVE_IDENTITY
#define ZSTD      ZMAP_SERVE_ZSTD
#define NONE      ZMAP_SERVE_NONE

#define UNSET     ZMAP_WEIGHT_UNSET


/* lines are divided by "\n" */

typedef struct {
    const char    *name;
    const char    *value;
    zmap_serve_e   serve;
} accept_choice_t;


typedef struct {
    const char    *name;
    const char    *value;
    int            weight;    /* of zstd */
} accept_weight_t;


static accept_choice_t  accept_choices[] = {

    /* the six rules */

    { "empty value gives identity", "", IDENTITY },
    { "white space only gives identity", " \t ", IDENTITY },
    { "commas only give identity", ",, ,\t,", IDENTITY },
    { "browser list gives zstd", "gzip, deflate, br, zstd", ZSTD },
    { "zstd alone gives zstd", "zstd", ZSTD },
    { "upper case and spaces give zstd", "ZSTD ; Q=1.000", ZSTD },
    { "mixed case gives zstd", "zStD;q=0.001", ZSTD },
    { "no zstd gives identity", "gzip, deflate, br", IDENTITY },
    { "any coding excluded except zstd gives zstd", "*;q=0, zstd", ZSTD },
    { "zstd excluded before any gives identity", "zstd;q=0, *", IDENTITY },
    { "zstd excluded after any gives identity", "*, zstd;q=0", IDENTITY },
    { "media request of chrome gives identity", "identity;q=1, *;q=0",
      IDENTITY },
    { "identity excluded without zstd is not acceptable", "identity;q=0, br",
      NONE },
    { "all excluded is not acceptable", "*;q=0", NONE },
    { "all excluded by name is not acceptable", "identity;q=0, zstd;q=0",
      NONE },
    { "other coding beside all excluded is not acceptable", "br, *;q=0",
      NONE },
    { "any alone gives identity", "*", IDENTITY },
    { "any with weight alone gives identity", "*;q=0.5", IDENTITY },
    { "any beside identity excluded gives zstd", "identity;q=0, *", ZSTD },
    { "any of low weight beside identity excluded gives zstd",
      "*;q=0.001, identity;q=0", ZSTD },
    { "any beside identity and zstd excluded is not acceptable",
      "identity;q=0, *, zstd;q=0", NONE },
    { "any of weight 0 beside identity gives identity", "identity, *;q=0",
      IDENTITY },

    /* weights of zstd and identity */

    { "identity preferred gives identity", "zstd;q=0.5, identity",
      IDENTITY },
    { "identity preferred by a thousandth gives identity",
      "identity;q=0.501, zstd;q=0.5", IDENTITY },
    { "zstd preferred by a thousandth gives zstd",
      "identity;q=0.5, zstd;q=0.501", ZSTD },
    { "equal weights give zstd", "identity;q=0.5, zstd;q=0.5", ZSTD },
    { "equal full weights give zstd", "identity, zstd", ZSTD },
    { "equal weights in other digits give zstd",
      "identity;q=0.50, zstd;q=0.500", ZSTD },
    { "heavier other coding does not hide zstd", "br;q=1.0, zstd;q=0.1",
      ZSTD },
    { "heavier any does not hide zstd", "zstd;q=0.1, *;q=0.9", ZSTD },
    { "zstd excluded gives identity", "zstd;q=0", IDENTITY },
    { "zstd of low weight beside identity excluded gives zstd",
      "zstd;q=0.001, identity;q=0", ZSTD },
    { "both of weight 0 is not acceptable", "identity;q=0, zstd;q=0, gzip",
      NONE },
    { "identity alone gives identity", "identity", IDENTITY },
    { "identity of low weight gives identity", "identity;q=0.001",
      IDENTITY },
    { "identity excluded alone is not acceptable", "identity;q=0", NONE },

    /* names */

    { "x-zstd is another coding", "x-zstd", IDENTITY },
    { "zstd2 is another coding", "zstd2", IDENTITY },
    { "zst is another coding", "zst", IDENTITY },
    { "dcz is another coding", "dcz", IDENTITY },
    { "zstd-x is another coding", "zstd-x", IDENTITY },
    { "notzstd alone is another coding", "notzstd", IDENTITY },
    { "zstd after notzstd is found", "notzstd, zstd", ZSTD },
    { "zstd after zstd2 is found", "zstd2,zstd", ZSTD },
    { "zstd before zstd2 excluded is found", "zstd,zstd2;q=0", ZSTD },
    { "identity2 excluded does not exclude identity", "identity2;q=0",
      IDENTITY },
    { "two stars are another coding", "**;q=0", IDENTITY },
    { "zstd with the next letter is another coding", "zste", IDENTITY },
    { "zstd with bit 5 flipped in no letter is another coding",
      "z\x13td", IDENTITY },

    /* positions and separators */

    { "zstd first is found", "zstd, gzip, br", ZSTD },
    { "zstd in the middle is found", "gzip, zstd, br", ZSTD },
    { "zstd last is found", "gzip, br, zstd", ZSTD },
    { "zstd first without spaces is found", "zstd,gzip,br", ZSTD },
    { "zstd in the middle without spaces is found", "gzip,zstd,br", ZSTD },
    { "zstd last without spaces is found", "gzip,br,zstd", ZSTD },
    { "tabs around zstd are skipped", "gzip\t,\tzstd\t,\tbr", ZSTD },
    { "empty members are skipped", ",,gzip,, ,zstd,,", ZSTD },
    { "space divides no members", "gzip zstd", IDENTITY },
    { "semicolon divides no members", "gzip;zstd", IDENTITY },

    /* broken members */

    { "quoted comma makes no zstd member", "gzip;a=\"b, zstd\"", IDENTITY },
    { "quoted comma without spaces makes no zstd member",
      "gzip;a=\",zstd,\"", IDENTITY },
    { "escaped quote does not end a quoted string",
      "gzip;a=\"\\\", zstd\"", IDENTITY },
    { "escaped backslash does not escape the quote",
      "gzip;a=\"\\\\\", zstd", ZSTD },
    { "zstd after a quoted string is found", "gzip;a=\"b, c\", zstd", ZSTD },
    { "open quoted string takes the rest of the line",
      "gzip;a=\"b, zstd, identity;q=0", IDENTITY },
    { "backslash at the end of an open quoted string is survived",
      "zstd, gzip;a=\"\\", ZSTD },
    { "backslash outside a quoted string escapes nothing",
      "gzip;a=\\\", zstd", IDENTITY },
    { "quoted zstd is no coding", "\"zstd\"", IDENTITY },
    { "broken other coding does not hide zstd", "gzip;q=9, zstd", ZSTD },
    { "broken zstd beside identity gives identity", "zstd;q=2, identity",
      IDENTITY },
    { "broken zstd beside any gives identity", "zstd;q=, *", IDENTITY },
    { "broken zstd beside identity excluded is not acceptable",
      "zstd;q=1.001, identity;q=0, *", NONE },
    { "broken identity counts as refused", "identity;q=", NONE },
    { "broken any counts as refused", "*;q=0.0001", NONE },
    { "weight without coding is skipped", ";q=0, zstd", ZSTD },
    { "semicolon alone is skipped", ";, zstd", ZSTD },

    /* repeats and several lines */

    { "repeated zstd has the lower weight", "zstd, zstd;q=0", IDENTITY },
    { "repeated zstd has the lower weight in other order",
      "zstd;q=0, zstd", IDENTITY },
    { "broken repeat refuses zstd", "zstd, zstd;q=1;q=1", IDENTITY },
    { "repeated identity has the lower weight",
      "identity;q=0, identity", NONE },
    { "zstd in the second line is found", "gzip, br\nzstd", ZSTD },
    { "zstd in the first line is found", "zstd\ngzip, br", ZSTD },
    { "refusal in the second line counts", "zstd\nzstd;q=0", IDENTITY },
    { "identity excluded in the second line counts", "br\nidentity;q=0",
      NONE },
    { "open quoted string ends with its line", "gzip;a=\"b\nzstd", ZSTD },
    { "empty second line changes nothing", "zstd\n", ZSTD },
    { "member is not continued in the second line", "zst\nd", IDENTITY }
};


static accept_weight_t  accept_weights[] = {

    { "no weight is 1", "zstd", 1000 },
    { "q=1 is 1", "zstd;q=1", 1000 },
    { "q=1. is 1", "zstd;q=1.", 1000 },
    { "q=1.0 is 1", "zstd;q=1.0", 1000 },
    { "q=1.00 is 1", "zstd;q=1.00", 1000 },
    { "q=1.000 is 1", "zstd;q=1.000", 1000 },
    { "q=0 is 0", "zstd;q=0", 0 },
    { "q=0. is 0", "zstd;q=0.", 0 },
    { "q=0.0 is 0", "zstd;q=0.0", 0 },
    { "q=0.00 is 0", "zstd;q=0.00", 0 },
    { "q=0.000 is 0", "zstd;q=0.000", 0 },
    { "one decimal counts tenths", "zstd;q=0.7", 700 },
    { "two decimals count hundredths", "zstd;q=0.75", 750 },
    { "three decimals count thousandths", "zstd;q=0.756", 756 },
    { "decimals after zeros count", "zstd;q=0.009", 9 },
    { "largest weight below 1 counts", "zstd;q=0.999", 999 },
    { "upper case q counts", "zstd;Q=0.5", 500 },
    { "spaces around the semicolon are legal", "zstd ; q=0.5", 500 },
    { "tabs around the semicolon are legal", "zstd\t;\tq=0.5", 500 },
    { "spaces around the member are legal", "  zstd;q=0.5  ", 500 },
    { "other codings have no weight of zstd", "gzip;q=0.3, br;q=0.4",
      UNSET },

    { "q=1.001 is refused", "zstd;q=1.001", 0 },
    { "q=1.1 is refused", "zstd;q=1.1", 0 },
    { "q=1.01 is refused", "zstd;q=1.01", 0 },
    { "q=2 is refused", "zstd;q=2", 0 },
    { "q=999 is refused", "zstd;q=999", 0 },
    { "q=10 is refused", "zstd;q=10", 0 },
    { "q=05 is refused", "zstd;q=05", 0 },
    { "q=01 is refused", "zstd;q=01", 0 },
    { "q=00 is refused", "zstd;q=00", 0 },
    { "q=0.0001 is refused", "zstd;q=0.0001", 0 },
    { "q=0.5000 is refused", "zstd;q=0.5000", 0 },
    { "q=1.0000 is refused", "zstd;q=1.0000", 0 },
    { "q=.5 is refused", "zstd;q=.5", 0 },
    { "q=-1 is refused", "zstd;q=-1", 0 },
    { "q=+1 is refused", "zstd;q=+1", 0 },
    { "q=0,5 is refused", "zstd;q=0,5", 0 },
    { "q=1e0 is refused", "zstd;q=1e0", 0 },
    { "q=0.5. is refused", "zstd;q=0.5.", 0 },
    { "q=1.0.0 is refused", "zstd;q=1.0.0", 0 },
    { "q=0.: is refused", "zstd;q=0.:", 0 },
    { "q=0./ is refused", "zstd;q=0./", 0 },
    { "quoted weight is refused", "zstd;q=\"1\"", 0 },
    { "empty weight is refused", "zstd;q=", 0 },
    { "blank weight is refused", "zstd;q= ", 0 },
    { "name of the weight alone is refused", "zstd;q", 0 },
    { "semicolon alone is refused", "zstd;", 0 },
    { "two semicolons are refused", "zstd;;q=1", 0 },
    { "semicolon after the weight is refused", "zstd;q=1;", 0 },
    { "space before the equals sign is refused", "zstd;q =1", 0 },
    { "space after the equals sign is refused", "zstd;q= 1", 0 },
    { "junk after the weight is refused", "zstd;q=1x", 0 },
    { "junk after decimals is refused", "zstd;q=0.5x", 0 },
    { "word after the weight is refused", "zstd;q=1 x", 0 },
    { "word after the coding is refused", "zstd gzip", 0 },
    { "equals sign after the coding is refused", "zstd=1", 0 },
    { "slash after the coding is refused", "zstd/1", 0 },
    { "repeated weight is refused", "zstd;q=1;q=0", 0 },
    { "repeated equal weight is refused", "zstd;q=1;q=1", 0 },
    { "unknown parameter is refused", "zstd;level=3", 0 },
    { "unknown parameter before the weight is refused",
      "zstd;level=3;q=1", 0 },
    { "unknown parameter after the weight is refused",
      "zstd;q=1;level=3", 0 },
    { "longer name of the weight is refused", "zstd;qq=1", 0 },
    { "other name of the weight is refused", "zstd;p=1", 0 },
    { "quoted parameter is refused", "zstd;a=\"b, c\"", 0 },
    { "control character after the coding is refused", "zstd\x01", 0 },
    { "carriage return after the coding is refused", "zstd\r", 0 },
    { "high byte after the coding is refused", "zstd\xa0", 0 },
    { "high byte before the coding names no coding", "\xa0zstd", UNSET }
};


/* every line in a buffer of its exact size */

static void
accept_lines(zmap_accept_t *accept, const char *value)
{
    size_t    len;
    uint8_t  *line;

    zmap_accept_init(accept);

    for ( ;; ) {
        len = strcspn(value, "\n");

        line = unit_copy(value, len);
        zmap_accept_line(accept, line, len);
        free(line);

        if (value[len] == '\0') {
            return;
        }

        value += len + 1;
    }
}


static void
accept_choice(void **state)
{
    zmap_accept_t     accept;
    accept_choice_t  *row;

    row = *state;

    accept_lines(&accept, row->value);

    assert_int_equal(zmap_accept_choose(&accept), row->serve);
}


static void
accept_weight(void **state)
{
    zmap_accept_t     accept;
    accept_weight_t  *row;

    row = *state;

    accept_lines(&accept, row->value);

    assert_int_equal(accept.weight[ZMAP_CODING_ZSTD], row->weight);
    assert_int_equal(accept.weight[ZMAP_CODING_IDENTITY], UNSET);
    assert_int_equal(accept.weight[ZMAP_CODING_ANY], UNSET);
}


static void
accept_no_line_gives_identity(void **state)
{
    zmap_accept_t  accept;

    (void) state;

    zmap_accept_init(&accept);

    assert_int_equal(zmap_accept_choose(&accept), IDENTITY);
    assert_true(zmap_accept_identity(&accept));
}


static void
accept_null_of_no_length_is_empty(void **state)
{
    zmap_accept_t  accept;

    (void) state;

    zmap_accept_init(&accept);
    zmap_accept_line(&accept, NULL, 0);

    assert_int_equal(zmap_accept_choose(&accept), IDENTITY);
}


static void
accept_length_ends_the_value(void **state)
{
    zmap_accept_t  accept;

    (void) state;

    zmap_accept_init(&accept);
    zmap_accept_line(&accept, (const uint8_t *) "gzip, zstd;q=0", 10);

    assert_int_equal(accept.weight[ZMAP_CODING_ZSTD], 1000);

    zmap_accept_init(&accept);
    zmap_accept_line(&accept, (const uint8_t *) "gzip, zstd", 9);

    assert_int_equal(accept.weight[ZMAP_CODING_ZSTD], UNSET);
}


static void
accept_nul_ends_nothing(void **state)
{
    zmap_accept_t  accept;

    (void) state;

    zmap_accept_init(&accept);
    zmap_accept_line(&accept, (const uint8_t *) "gzip\0, zstd", 11);

    assert_int_equal(accept.weight[ZMAP_CODING_ZSTD], 1000);

    zmap_accept_init(&accept);
    zmap_accept_line(&accept, (const uint8_t *) "zstd\0", 5);

    assert_int_equal(accept.weight[ZMAP_CODING_ZSTD], 0);
}


static void
accept_every_cut_is_survived(void **state)
{
    size_t              i, len;
    uint8_t            *line;
    zmap_accept_t       accept;

    static const char   value[] = "a;b=\"\\\",c\" , zstd ; q=0.125 , *;q=0.5";

    (void) state;

    for (len = 0; len <= sizeof(value) - 1; len++) {
        line = unit_copy(value, len);

        zmap_accept_init(&accept);
        zmap_accept_line(&accept, line, len);
        free(line);

        for (i = 0; i < ZMAP_CODINGS; i++) {
            assert_true(accept.weight[i] >= UNSET);
            assert_true(accept.weight[i] <= ZMAP_WEIGHT_MAX);
        }
    }

    assert_int_equal(accept.weight[ZMAP_CODING_ZSTD], 125);
    assert_int_equal(accept.weight[ZMAP_CODING_ANY], 500);
    assert_int_equal(accept.weight[ZMAP_CODING_IDENTITY], UNSET);
}


/* RFC 9110, 5.6.2: a name goes on with these and ends before the others */

static void
accept_name_ends_at_every_delimiter(void **state)
{
    int             c;
    uint8_t         line[] = "zstd?";
    zmap_accept_t   accept;

    static const char  tchar[] =
        "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

    (void) state;

    for (c = 0; c < 256; c++) {

        if (c == ' ' || c == '\t' || c == ',') {
            continue;
        }

        line[4] = (uint8_t) c;

        zmap_accept_init(&accept);
        zmap_accept_line(&accept, line, 5);

        assert_int_equal(accept.weight[ZMAP_CODING_ZSTD],
                         c != 0 && strchr(tchar, c) ? UNSET : 0);
    }
}


static void
accept_identity_follows_its_rule(void **state)
{
    size_t         i;
    zmap_accept_t  accept;

    static const struct {
        const char  *value;
        int          identity;
    } rows[] = {
        { "", 1 },
        { "zstd", 1 },
        { "identity", 1 },
        { "identity;q=0.001, *;q=0", 1 },
        { "*", 1 },
        { "identity;q=0", 0 },
        { "identity;q=0, *", 0 },
        { "*;q=0", 0 },
        { "*;q=0, zstd", 0 }
    };

    (void) state;

    for (i = 0; i < UNIT_COUNT(rows); i++) {
        accept_lines(&accept, rows[i].value);

        assert_int_equal(!!zmap_accept_identity(&accept), rows[i].identity);
    }
}


static const struct CMUnitTest  accept_others[] = {
    cmocka_unit_test(accept_no_line_gives_identity),
    cmocka_unit_test(accept_null_of_no_length_is_empty),
    cmocka_unit_test(accept_length_ends_the_value),
    cmocka_unit_test(accept_nul_ends_nothing),
    cmocka_unit_test(accept_every_cut_is_survived),
    cmocka_unit_test(accept_name_ends_at_every_delimiter),
    cmocka_unit_test(accept_identity_follows_its_rule)
};


int
main(void)
{
    size_t             n;
    struct CMUnitTest  tests[UNIT_COUNT(accept_choices)
                             + UNIT_COUNT(accept_weights)
                             + UNIT_COUNT(accept_others)];

    n = UNIT_ROWS(tests, accept_choices, accept_choice);
    n += UNIT_ROWS(tests + n, accept_weights, accept_weight);

    memcpy(tests + n, accept_others, sizeof(accept_others));
    n += UNIT_COUNT(accept_others);

    return unit_run("accept", tests, n);
}
