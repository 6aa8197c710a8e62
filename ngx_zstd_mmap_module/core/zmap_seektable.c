
/*
 * The seek table of a file: its footer and its entries.
 */


#include "zmap_seektable.h"


#define ZMAP_SEEKTABLE_END       0x8f92eab1u
#define ZMAP_SEEKTABLE_HEADER    8          /* magic number and Frame_Size */
#define ZMAP_SEEKTABLE_FOOTER    9

/* the bits of Seek_Table_Descriptor; the lowest two may have any value */
#define ZMAP_SEEKTABLE_CHECKSUM  0x80
#define ZMAP_SEEKTABLE_RESERVED  0x7c


static zmap_rc_e zmap_seektable_footer(const uint8_t *p,
    zmap_seektable_t *table);


zmap_rc_e
zmap_seektable_find(zmap_seektable_t *table, const uint8_t *data,
    uint64_t size)
{
    uint64_t          content;
    zmap_rc_e         rc;
    const uint8_t    *p;
    zmap_seektable_t  found;

    if (size < ZMAP_SEEKTABLE_HEADER + ZMAP_SEEKTABLE_FOOTER
        || zmap_le(data + size - 4, 4) != ZMAP_SEEKTABLE_END)
    {
        return ZMAP_EMPTY;
    }

    rc = zmap_seektable_footer(data + size - ZMAP_SEEKTABLE_FOOTER, &found);

    if (rc != ZMAP_OK) {
        return rc;
    }

    content = (uint64_t) found.nframes * found.entry_size
              + ZMAP_SEEKTABLE_FOOTER;

    if (content > size - ZMAP_SEEKTABLE_HEADER) {
        return ZMAP_SEEK_TABLE;
    }

    found.start = size - ZMAP_SEEKTABLE_HEADER - content;
    p = data + found.start;

    if (zmap_le(p, 4) != ZMAP_SEEKTABLE_MAGIC || zmap_le(p + 4, 4) != content)
    {
        return ZMAP_SEEK_TABLE;
    }

    *table = found;

    return ZMAP_OK;
}


zmap_rc_e
zmap_seektable_entry(const zmap_seektable_t *table, const uint8_t *data,
    uint64_t i, zmap_seektable_entry_t *entry)
{
    uint32_t        decoded;
    const uint8_t  *p;

    if (i >= table->nframes) {
        return ZMAP_SEEK_TABLE;
    }

    p = data + table->start + ZMAP_SEEKTABLE_HEADER + i * table->entry_size;

    decoded = (uint32_t) zmap_le(p + 4, 4);

    if (decoded > ZMAP_SEEKTABLE_DECODED_MAX) {
        return ZMAP_SEEK_TABLE;
    }

    entry->coded = (uint32_t) zmap_le(p, 4);
    entry->decoded = decoded;

    return ZMAP_OK;
}


static zmap_rc_e
zmap_seektable_footer(const uint8_t *p, zmap_seektable_t *table)
{
    if (p[4] & ZMAP_SEEKTABLE_RESERVED) {
        return ZMAP_SEEK_TABLE;
    }

    table->nframes = (uint32_t) zmap_le(p, 4);
    table->entry_size = (p[4] & ZMAP_SEEKTABLE_CHECKSUM) ? 12 : 8;

    return (table->nframes > ZMAP_SEEKTABLE_FRAMES_MAX) ? ZMAP_SEEK_TABLE
                                                         : ZMAP_OK;
}
