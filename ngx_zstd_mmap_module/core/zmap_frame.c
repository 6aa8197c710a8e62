
/*
 * The walker over Zstandard frames and the frame index that it leaves.
 */


#include <stdlib.h>

#include "zmap_frame.h"


#define ZMAP_FRAME_MAGIC         0xfd2fb528u
#define ZMAP_MAGIC_SIZE          4
#define ZMAP_FRAME_HEADER_MIN    5          /* magic number and descriptor */
#define ZMAP_SKIPPABLE_MAGIC     0x184d2a50u
#define ZMAP_SKIPPABLE_VARIANT   0x0000000fu
#define ZMAP_SKIPPABLE_HEADER    ZMAP_FRAME_SKIP_MIN
#define ZMAP_BLOCK_HEADER        3
#define ZMAP_CHECKSUM_SIZE       4
#define ZMAP_FRAME_INDEX_FIRST   4          /* entries of the first growth */

/* RFC 8878, 3.1.1.1.1: the bits of Frame_Header_Descriptor */
#define ZMAP_FHD_DICTIONARY      0x03
#define ZMAP_FHD_CHECKSUM        0x04
#define ZMAP_FHD_RESERVED        0x08
#define ZMAP_FHD_SINGLE_SEGMENT  0x20
#define ZMAP_FHD_CONTENT_SHIFT   6


/* RFC 8878, 3.1.1.2.2 */

typedef enum {
    ZMAP_BLOCK_RAW = 0,
    ZMAP_BLOCK_RLE,
    ZMAP_BLOCK_COMPRESSED,
    ZMAP_BLOCK_RESERVED
} zmap_block_e;


typedef struct {
    zmap_block_e  type;
    uint32_t      size;    /* Block_Size */
    uint32_t      coded;   /* bytes after the block header */
    uint32_t      last;
} zmap_block_t;


static zmap_rc_e zmap_frame_skip_one(const uint8_t *data, size_t len,
    uint64_t left, uint64_t *size);
static zmap_rc_e zmap_frame_skippable(const uint8_t *p, uint64_t left,
    uint64_t *size);
static int zmap_frame_magic(const uint8_t *data, size_t len, uint32_t magic,
    uint32_t ignore);
static void zmap_frame_fields(const uint8_t *data, size_t window_size,
    size_t dictionary_size, size_t content_size, zmap_frame_header_t *header);
static uint64_t zmap_frame_window(uint8_t descriptor);

static zmap_rc_e zmap_walk_step(zmap_walk_t *walk, const uint8_t *data);
static zmap_rc_e zmap_walk_skippable(zmap_walk_t *walk, const uint8_t *data);
static zmap_rc_e zmap_walk_frame(zmap_walk_t *walk, const uint8_t *p,
    size_t len);
static void zmap_walk_note(zmap_walk_t *walk);
static zmap_rc_e zmap_walk_block(zmap_walk_t *walk, const uint8_t *data);
static void zmap_walk_block_header(const uint8_t *p, zmap_block_t *block);
static zmap_rc_e zmap_walk_frame_end(zmap_walk_t *walk, const uint8_t *data);
static uint64_t zmap_walk_most(const zmap_walk_t *walk);
static zmap_rc_e zmap_walk_add_content(zmap_walk_t *walk, uint64_t size);

static void zmap_table_find(zmap_walk_t *walk, const uint8_t *data);
static void zmap_table_compare(zmap_walk_t *walk, const uint8_t *data,
    uint64_t least, uint64_t most, uint64_t *size);
static int zmap_table_agrees(const zmap_walk_t *walk, const uint8_t *data,
    uint64_t least, uint64_t most, zmap_seektable_entry_t *entry);
static void zmap_table_last(zmap_walk_t *walk, const uint8_t *data);
static void zmap_table_end(zmap_walk_t *walk, zmap_table_e tabled);

static zmap_rc_e zmap_index_reserve(zmap_walk_t *walk);
static void zmap_index_add(zmap_walk_t *walk);
static void zmap_index_drop(zmap_walk_t *walk);


zmap_rc_e
zmap_frame_header(const uint8_t *data, size_t len,
    zmap_frame_header_t *header)
{
    size_t                window, dictionary, content;
    uint8_t               fhd;

    static const uint8_t  dictionary_sizes[] = { 0, 1, 2, 4 };
    static const uint8_t  content_sizes[] = { 0, 2, 4, 8 };

    if (!zmap_frame_magic(data, len, ZMAP_FRAME_MAGIC, 0)) {
        return ZMAP_MAGIC;
    }

    if (len < ZMAP_FRAME_HEADER_MIN) {
        return ZMAP_TRUNCATED;
    }

    fhd = data[4];

    if (fhd & ZMAP_FHD_RESERVED) {
        return ZMAP_HEADER;
    }

    window = 1;
    dictionary = dictionary_sizes[fhd & ZMAP_FHD_DICTIONARY];
    content = content_sizes[fhd >> ZMAP_FHD_CONTENT_SHIFT];

    if (fhd & ZMAP_FHD_SINGLE_SEGMENT) {
        window = 0;
        content = content ? content : 1;
    }

    if (window + dictionary + content > len - ZMAP_FRAME_HEADER_MIN) {
        return ZMAP_TRUNCATED;
    }

    zmap_frame_fields(data, window, dictionary, content, header);

    return ZMAP_OK;
}


zmap_rc_e
zmap_frame_skip(const uint8_t *data, size_t len, uint64_t size, uint64_t end,
    uint64_t *pos)
{
    size_t     n;
    uint64_t   frame;
    zmap_rc_e  rc;

    while (*pos < end) {
        rc = zmap_frame_skip_one(data, len, size - *pos, &frame);

        if (rc != ZMAP_OK || frame == 0) {
            return rc;
        }

        *pos += frame;

        n = frame < len ? (size_t) frame : len;

        data += n;
        len -= n;
    }

    return ZMAP_OK;
}


void
zmap_walk_init(zmap_walk_t *walk, uint64_t size)
{
    *walk = (zmap_walk_t) {
        .size = size,
        .frames = { .sized = 1, .checksum = 1 }
    };
}


zmap_rc_e
zmap_walk_run(zmap_walk_t *walk, const uint8_t *data, uint64_t max_blocks)
{
    uint64_t   n;
    zmap_rc_e  rc;

    if (walk->_failed != ZMAP_OK) {
        return walk->_failed;
    }

    for (n = 0; walk->_inside || walk->offset < walk->size; n++) {

        if (max_blocks != 0 && n == max_blocks) {
            return ZMAP_AGAIN;
        }

        rc = zmap_walk_step(walk, data);

        if (rc == ZMAP_NOMEM) {
            return rc;
        }

        if (rc != ZMAP_OK) {
            walk->_failed = rc;
            return rc;
        }
    }

    return walk->frames.frames == 0 ? ZMAP_EMPTY : ZMAP_OK;
}


zmap_rc_e
zmap_walk_first(zmap_walk_t *walk, const uint8_t *data)
{
    zmap_rc_e  rc;

    rc = ZMAP_AGAIN;

    while (rc == ZMAP_AGAIN && walk->frames.frames == 0) {
        rc = zmap_walk_run(walk, data, 1);
    }

    return rc == ZMAP_AGAIN ? ZMAP_OK : rc;
}


void
zmap_walk_distrust(zmap_walk_t *walk)
{
    walk->frames.tabled = 0;
    walk->frames.table_lies = 1;
}


void
zmap_walk_free(zmap_walk_t *walk)
{
    zmap_index_drop(walk);
}


/* the size of the skippable frame that begins data, or 0 for a zstd frame */

static zmap_rc_e
zmap_frame_skip_one(const uint8_t *data, size_t len, uint64_t left,
    uint64_t *size)
{
    if (len < left && len < ZMAP_FRAME_SKIP_MIN) {
        return ZMAP_AGAIN;
    }

    if (zmap_frame_magic(data, len, ZMAP_FRAME_MAGIC, 0)) {
        *size = 0;
        return left < ZMAP_MAGIC_SIZE ? ZMAP_TRUNCATED : ZMAP_OK;
    }

    if (!zmap_frame_magic(data, len, ZMAP_SKIPPABLE_MAGIC,
                          ZMAP_SKIPPABLE_VARIANT))
    {
        return ZMAP_MAGIC;
    }

    return zmap_frame_skippable(data, left, size);
}


/* RFC 8878, 3.1.2: the size of the whole frame that begins at p */

static zmap_rc_e
zmap_frame_skippable(const uint8_t *p, uint64_t left, uint64_t *size)
{
    uint64_t  content;

    if (left < ZMAP_SKIPPABLE_HEADER) {
        return ZMAP_TRUNCATED;
    }

    content = zmap_le(p + 4, 4);

    if (content > left - ZMAP_SKIPPABLE_HEADER) {
        return ZMAP_TRUNCATED;
    }

    *size = ZMAP_SKIPPABLE_HEADER + content;

    return ZMAP_OK;
}


/*
 * Whether data begins with that magic number, the bits of ignore aside, or is
 * the beginning of it.
 */

static int
zmap_frame_magic(const uint8_t *data, size_t len, uint32_t magic,
    uint32_t ignore)
{
    size_t    n;
    uint32_t  mask;

    n = len < sizeof(uint32_t) ? len : sizeof(uint32_t);
    mask = (uint32_t) ((1ull << 8 * n) - 1) & ~ignore;

    return ((zmap_le(data, n) ^ magic) & mask) == 0;
}


/* data holds a whole header whose fields have these sizes */

static void
zmap_frame_fields(const uint8_t *data, size_t window_size,
    size_t dictionary_size, size_t content_size, zmap_frame_header_t *header)
{
    const uint8_t  *p;

    p = data + ZMAP_FRAME_HEADER_MIN + window_size;

    header->dictionary_id = (uint32_t) zmap_le(p, dictionary_size);
    p += dictionary_size;

    header->content_size = zmap_le(p, content_size);
    p += content_size;

    if (content_size == 2) {
        header->content_size += 256;
    }

    header->size = (uint8_t) (p - data);
    header->sized = content_size != 0;
    header->checksum = (data[4] & ZMAP_FHD_CHECKSUM) != 0;

    header->window = window_size ? zmap_frame_window(data[5])
                                 : header->content_size;

    header->block_max = header->window < ZMAP_BLOCK_MAX
                        ? (uint32_t) header->window : ZMAP_BLOCK_MAX;
}


/* RFC 8878, 3.1.1.1.2 */

static uint64_t
zmap_frame_window(uint8_t descriptor)
{
    uint64_t  base;

    base = 1ull << (10 + (descriptor >> 3));

    return base + base / 8 * (descriptor & 7);
}


static zmap_rc_e
zmap_walk_step(zmap_walk_t *walk, const uint8_t *data)
{
    size_t          len;
    uint64_t        left;
    const uint8_t  *p;

    p = data + walk->offset;
    left = walk->size - walk->offset;

    if (walk->_inside) {
        return zmap_walk_block(walk, data);
    }

    len = left < ZMAP_FRAME_HEADER_MAX ? (size_t) left : ZMAP_FRAME_HEADER_MAX;

    if (zmap_frame_magic(p, len, ZMAP_SKIPPABLE_MAGIC, ZMAP_SKIPPABLE_VARIANT))
    {
        return zmap_walk_skippable(walk, data);
    }

    return zmap_walk_frame(walk, p, len);
}


static zmap_rc_e
zmap_walk_skippable(zmap_walk_t *walk, const uint8_t *data)
{
    uint64_t   size, none;
    zmap_rc_e  rc;

    rc = zmap_frame_skippable(data + walk->offset, walk->size - walk->offset,
                              &size);
    if (rc != ZMAP_OK) {
        return rc;
    }

    walk->_coded = walk->offset;
    walk->offset += size;

    if (walk->offset == walk->size) {
        zmap_table_last(walk, data);

    } else {
        zmap_table_compare(walk, data, 0, 0, &none);
    }

    walk->frames.skippable++;

    return ZMAP_OK;
}


static zmap_rc_e
zmap_walk_frame(zmap_walk_t *walk, const uint8_t *p, size_t len)
{
    zmap_rc_e  rc;

    rc = zmap_frame_header(p, len, &walk->_header);

    if (rc != ZMAP_OK) {
        return rc;
    }

    rc = zmap_index_reserve(walk);

    if (rc != ZMAP_OK) {
        return rc;
    }

    zmap_index_add(walk);
    zmap_walk_note(walk);

    walk->_coded = walk->offset;
    walk->_known = 0;
    walk->_compressed = 0;
    walk->_inside = 1;
    walk->offset += walk->_header.size;

    return ZMAP_OK;
}


static void
zmap_walk_note(zmap_walk_t *walk)
{
    zmap_frames_t        *frames;
    zmap_frame_header_t  *header;

    frames = &walk->frames;
    header = &walk->_header;

    frames->frames++;

    if (header->window > frames->window) {
        frames->window = header->window;
    }

    if (frames->dictionary_id == 0) {
        frames->dictionary_id = header->dictionary_id;
    }

    if (!header->checksum) {
        frames->checksum = 0;
    }
}


static zmap_rc_e
zmap_walk_block(zmap_walk_t *walk, const uint8_t *data)
{
    uint64_t      size, left;
    zmap_block_t  block;

    left = walk->size - walk->offset;

    if (left < ZMAP_BLOCK_HEADER) {
        return ZMAP_TRUNCATED;
    }

    zmap_walk_block_header(data + walk->offset, &block);

    /*
     * The limit holds for both sizes: where Window_Size is 0, streaming
     * decoders find no room for the one byte of an RLE block that repeats it
     * zero times.
     */

    if (block.type == ZMAP_BLOCK_RESERVED
        || block.size > walk->_header.block_max
        || block.coded > walk->_header.block_max)
    {
        return ZMAP_BLOCK;
    }

    size = ZMAP_BLOCK_HEADER + block.coded;

    if (block.last && walk->_header.checksum) {
        size += ZMAP_CHECKSUM_SIZE;
    }

    if (size > left) {
        return ZMAP_TRUNCATED;
    }

    if (block.type == ZMAP_BLOCK_COMPRESSED) {
        walk->_compressed++;

    } else if (zmap_add_u64(walk->_known, block.size, &walk->_known) != 0) {
        return ZMAP_OVERFLOW;
    }

    walk->offset += size;

    return block.last ? zmap_walk_frame_end(walk, data) : ZMAP_OK;
}


static void
zmap_walk_block_header(const uint8_t *p, zmap_block_t *block)
{
    uint32_t  bits;

    bits = (uint32_t) zmap_le(p, ZMAP_BLOCK_HEADER);

    block->last = bits & 1;
    block->type = (zmap_block_e) (bits >> 1 & 3);
    block->size = bits >> 3;
    block->coded = block->type == ZMAP_BLOCK_RLE ? 1 : block->size;
}


static zmap_rc_e
zmap_walk_frame_end(zmap_walk_t *walk, const uint8_t *data)
{
    uint64_t  least, most, size;

    walk->_inside = 0;

    least = walk->_known;
    most = zmap_walk_most(walk);

    if (walk->_header.sized) {

        if (walk->_header.content_size < least
            || walk->_header.content_size > most)
        {
            walk->offset = walk->_coded;
            return ZMAP_CONTENT_SIZE;
        }

        least = walk->_header.content_size;
        most = least;
    }

    size = least;
    zmap_table_compare(walk, data, least, most, &size);

    if (least != most) {
        walk->frames.sized = 0;
    }

    if (!walk->frames.sized && walk->_tabled != ZMAP_TABLE_AGREES) {
        zmap_index_drop(walk);
        return ZMAP_OK;
    }

    return zmap_walk_add_content(walk, size);
}


/*
 * What the blocks of a frame can hold: raw and RLE blocks exactly their
 * Block_Size, compressed ones at most Block_Maximum_Size.
 */

static uint64_t
zmap_walk_most(const zmap_walk_t *walk)
{
    uint64_t  most;

    if (zmap_mul_u64(walk->_compressed, walk->_header.block_max, &most) != 0
        || zmap_add_u64(most, walk->_known, &most) != 0)
    {
        return UINT64_MAX;
    }

    return most;
}


static zmap_rc_e
zmap_walk_add_content(zmap_walk_t *walk, uint64_t size)
{

    if (zmap_add_u64(walk->frames.content_size, size,
                     &walk->frames.content_size)
        != 0)
    {
        walk->offset = walk->_coded;
        return ZMAP_OVERFLOW;
    }

    if (size > walk->frames.largest) {
        walk->frames.largest = size;
    }

    return ZMAP_OK;
}


static void
zmap_table_find(zmap_walk_t *walk, const uint8_t *data)
{
    zmap_rc_e  rc;

    rc = zmap_seektable_find(&walk->_table, data, walk->size);

    walk->_tabled = (rc == ZMAP_OK) ? ZMAP_TABLE_AGREES
                    : (rc == ZMAP_EMPTY) ? ZMAP_TABLE_NONE : ZMAP_TABLE_LIES;
}


/*
 * Compares the frame that ends at the walk's offset with its entry; *size is
 * then what that says, unless the table does not agree.
 */

static void
zmap_table_compare(zmap_walk_t *walk, const uint8_t *data, uint64_t least,
    uint64_t most, uint64_t *size)
{
    zmap_seektable_entry_t  entry;

    if (walk->_tabled == ZMAP_TABLE_UNKNOWN) {
        zmap_table_find(walk, data);
    }

    if (walk->_tabled != ZMAP_TABLE_AGREES) {
        return;
    }

    if (!zmap_table_agrees(walk, data, least, most, &entry)) {
        zmap_table_end(walk, ZMAP_TABLE_LIES);
        return;
    }

    walk->_entry++;
    *size = entry.decoded;
}


static int
zmap_table_agrees(const zmap_walk_t *walk, const uint8_t *data,
    uint64_t least, uint64_t most, zmap_seektable_entry_t *entry)
{
    return walk->offset <= walk->_table.start
           && zmap_seektable_entry(&walk->_table, data, walk->_entry, entry)
              == ZMAP_OK
           && entry->coded == walk->offset - walk->_coded
           && entry->decoded >= least
           && entry->decoded <= most;
}


/*
 * The last frame of the file is a skippable one.  Only of one variant it is a
 * table; in all other frames the same bytes are content.
 */

static void
zmap_table_last(zmap_walk_t *walk, const uint8_t *data)
{
    if (walk->_tabled == ZMAP_TABLE_UNKNOWN) {
        zmap_table_find(walk, data);
    }

    if (walk->_tabled == ZMAP_TABLE_NONE
        || zmap_le(data + walk->_coded, ZMAP_MAGIC_SIZE)
           != ZMAP_SEEKTABLE_MAGIC)
    {
        zmap_table_end(walk, ZMAP_TABLE_NONE);
        return;
    }

    if (walk->_tabled == ZMAP_TABLE_AGREES
        && walk->_coded == walk->_table.start
        && walk->_entry == walk->_table.nframes)
    {
        walk->frames.tabled = 1;
        return;
    }

    walk->frames.table_lies = 1;
    zmap_table_end(walk, ZMAP_TABLE_LIES);
}


/* what comes now is not held to it, and what it alone has told is forgotten */

static void
zmap_table_end(zmap_walk_t *walk, zmap_table_e tabled)
{
    walk->_tabled = tabled;

    if (!walk->frames.sized) {
        zmap_index_drop(walk);
    }
}


/*
 * Reads nothing of the file, so that no jump out of a fault can come between
 * the allocation and its place in the walk.
 */

static zmap_rc_e
zmap_index_reserve(zmap_walk_t *walk)
{
    size_t               capacity;
    zmap_frame_entry_t  *index;

    if (walk->_unindexed || walk->frames.nindex < walk->_capacity) {
        return ZMAP_OK;
    }

    if (walk->frames.nindex >= ZMAP_FRAME_INDEX_MAX) {
        zmap_index_drop(walk);

        if (walk->_tabled == ZMAP_TABLE_AGREES) {
            /* without an index no decoder could be held to it */
            zmap_table_end(walk, ZMAP_TABLE_NONE);
        }

        return ZMAP_OK;
    }

    capacity = walk->_capacity ? 2 * walk->_capacity : ZMAP_FRAME_INDEX_FIRST;

    if (capacity > ZMAP_FRAME_INDEX_MAX) {
        capacity = ZMAP_FRAME_INDEX_MAX;
    }

    index = realloc(walk->frames.index, capacity * sizeof(zmap_frame_entry_t));

    if (index == NULL) {
        return ZMAP_NOMEM;
    }

    walk->frames.index = index;
    walk->_capacity = capacity;

    return ZMAP_OK;
}


static void
zmap_index_add(zmap_walk_t *walk)
{
    zmap_frame_entry_t  *entry;

    if (walk->_unindexed) {
        return;
    }

    entry = &walk->frames.index[walk->frames.nindex++];
    entry->coded = walk->offset;
    entry->decoded = walk->frames.content_size;
}


/* there will be no index any more */

static void
zmap_index_drop(zmap_walk_t *walk)
{
    free(walk->frames.index);

    walk->frames.index = NULL;
    walk->frames.nindex = 0;
    walk->_capacity = 0;
    walk->_unindexed = 1;
}
