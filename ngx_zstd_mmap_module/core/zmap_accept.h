
/*
 * Accept-Encoding: which representation a client asked for.
 *
 * RFC 9110, 12.5.3 and 12.4.2.  Several field lines combine as one list.
 * Tokens and the name of the weight are case-insensitive.  A list member that
 * breaks the grammar (q=1.001, q=, two weights, an unknown parameter) counts
 * as refused, q=0: a client never gets a coding because of a typing error.
 * A coding that is listed twice has the lower of its weights.
 *
 * Not thread-safe per object; no allocation, no locale.
 */


#ifndef ZMAP_ACCEPT_H
#define ZMAP_ACCEPT_H


#include "zmap_base.h"


ZMAP_BEGIN


#define ZMAP_WEIGHT_MAX    1000
#define ZMAP_WEIGHT_UNSET  -1


typedef enum {
    ZMAP_CODING_IDENTITY = 0,
    ZMAP_CODING_ZSTD,
    ZMAP_CODING_ANY,              /* the wildcard "*" */
    ZMAP_CODINGS
} zmap_coding_e;


typedef enum {
    ZMAP_SERVE_IDENTITY = 0,
    ZMAP_SERVE_ZSTD,
    ZMAP_SERVE_NONE               /* 406: the client excluded all we have */
} zmap_serve_e;


typedef struct {
    int16_t  weight[ZMAP_CODINGS];  /* thousandths, or ZMAP_WEIGHT_UNSET */
} zmap_accept_t;


/* the state before the first line: nothing listed, so identity is served */
void zmap_accept_init(zmap_accept_t *accept);

/*
 * Adds one field value.  Reads value[0..len) only; no terminating NUL is
 * needed.  Never fails: see above for members that break the grammar.
 */
void zmap_accept_line(zmap_accept_t *accept, const uint8_t *value, size_t len);

/*
 * What to send when zstd frames and identity both exist:
 *
 * - zstd when it is listed with a weight above 0 and identity is not listed
 *   with a higher one (a tie goes to zstd);
 * - "*" alone does not ask for zstd; it allows zstd only where identity is
 *   excluded, by "identity;q=0" (or by "*;q=0", which excludes zstd as well);
 * - identity otherwise, unless it is excluded by "identity;q=0" or by "*;q=0"
 *   without an entry of its own: then ZMAP_SERVE_NONE.
 */
zmap_serve_e zmap_accept_choose(const zmap_accept_t *accept);

/* nonzero unless the client excluded identity (same rule as above) */
int zmap_accept_identity(const zmap_accept_t *accept);


ZMAP_END


#endif /* ZMAP_ACCEPT_H */
