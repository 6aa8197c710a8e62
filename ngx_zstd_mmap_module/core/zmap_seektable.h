
/*
 * Reads the seek table at the end of a file of Zstandard frames.
 *
 * Zstandard seekable format 0.1.0: the last frame of the file is a skippable
 * one (magic number 0x184D2A5E) with one entry for each frame before it, zstd
 * or skippable, in their order: its coded and its decoded size.  A footer of
 * nine bytes says how many there are.  All that is compared here is the table
 * with itself and with the size of the file; the caller compares it with the
 * frames.
 *
 * The bytes may lie in a mapping: nothing is allocated, nothing is kept outside
 * the structs of the caller.  Bytes that change meanwhile give other values,
 * and no read outside of the file.
 */


#ifndef ZMAP_SEEKTABLE_H
#define ZMAP_SEEKTABLE_H


#include "zmap_base.h"


ZMAP_BEGIN


#define ZMAP_SEEKTABLE_MAGIC        0x184d2a5eu

/* the limits of the format */
#define ZMAP_SEEKTABLE_FRAMES_MAX   0x8000000u
#define ZMAP_SEEKTABLE_DECODED_MAX  0x40000000u    /* bytes of a frame */


typedef struct {
    uint64_t  start;           /* offset of its skippable frame in the file */
    uint32_t  nframes;         /* number of entries */
    uint32_t  entry_size;      /* bytes: 8, with checksums 12 */
} zmap_seektable_t;


typedef struct {
    uint32_t  coded;           /* size of the frame in the file, bytes */
    uint32_t  decoded;         /* and of what it decodes to */
} zmap_seektable_entry_t;


/*
 * Looks for a table at the end of the file data[0..size).
 *
 * ZMAP_OK; ZMAP_EMPTY: the file does not end with the magic number of a table;
 * ZMAP_SEEK_TABLE: it does, and what comes before is none.
 */
zmap_rc_e zmap_seektable_find(zmap_seektable_t *table, const uint8_t *data,
    uint64_t size);

/*
 * Reads entry number i of a table that was found in data.  ZMAP_OK, or
 * ZMAP_SEEK_TABLE: there is none of that number, or its decoded size is above
 * the limit of the format.
 */
zmap_rc_e zmap_seektable_entry(const zmap_seektable_t *table,
    const uint8_t *data, uint64_t i, zmap_seektable_entry_t *entry);


ZMAP_END


#endif /* ZMAP_SEEKTABLE_H */
