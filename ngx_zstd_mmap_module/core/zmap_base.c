
/*
 * The phrases for the return codes.
 */


#include "zmap_base.h"


/* each reads well in "<file> is not usable: <phrase>" */

static const char  *zmap_phrases[] = {
    [ZMAP_OK]           = "no error",
    [ZMAP_AGAIN]        = "not finished",
    [ZMAP_SYSERR]       = "system call failed",
    [ZMAP_NOMEM]        = "not enough memory",
    [ZMAP_OVERFLOW]     = "sizes out of range",
    [ZMAP_FAULT]        = "file lost pages while in use",
    [ZMAP_TOUCHED]      = "file touched while in use",
    [ZMAP_CHANGED]      = "file changed while in use",
    [ZMAP_TOO_LARGE]    = "more decoded bytes than allowed",
    [ZMAP_SEEK_TABLE]   = "wrong seek table",
    [ZMAP_EMPTY]        = "no zstd frame",
    [ZMAP_MAGIC]        = "unknown magic number",
    [ZMAP_TRUNCATED]    = "truncated frame",
    [ZMAP_HEADER]       = "invalid frame header",
    [ZMAP_BLOCK]        = "invalid block header",
    [ZMAP_CONTENT_SIZE] = "wrong content size",
    [ZMAP_CHECKSUM]     = "checksum mismatch",
    [ZMAP_WINDOW]       = "window too large",
    [ZMAP_DICTIONARY]   = "dictionary needed",
    [ZMAP_CORRUPT]      = "corrupt data"
};


const char *
zmap_strerror(zmap_rc_e rc)
{
    size_t  i;

    i = (size_t) rc;

    if (i >= sizeof(zmap_phrases) / sizeof(zmap_phrases[0])) {
        return "unknown error";
    }

    return zmap_phrases[i];
}
