
/*
 * Seek tables: hand-made ones, and the walk that compares them with the frames.
 */


#include <stdio.h>

#include "unit.h"
#include "zmap_frame.h"


#define PARTS_MAX    8

/* what a compressed block of those frames can hold */
#define BLOCK_MAX    131072


typedef struct {
    size_t    at;             /* offset from the begin of the table */
    uint8_t   flip;
} table_flip_t;


/* the end of a file and what is found there */

typedef struct {
    const char        *name;
    size_t             before;         /* bytes before the table */
    uint32_t           nframes;
    uint8_t            descriptor;
    table_flip_t       flip;
    size_t             cut;            /* bytes from the begin */
    zmap_rc_e          rc;
} table_find_t;


/* a file of frames with a table, and what the walk says of it */

typedef struct {
    const char        *name;
    const char        *parts;          /* see table_part() */
    const char        *after;          /* parts behind the table */
    uint32_t           decoded[PARTS_MAX];
    int                more;           /* entries than parts */
    table_flip_t       flip;
    int                tabled;
    int                lies;
    int                sized;
    uint64_t           content;        /* if sized or tabled */
} table_walk_t;


typedef struct {
    uint8_t   *data;                   /* exact size */
    size_t     size;
    size_t     table;                  /* offset of the table */
    size_t     nparts;
    size_t     coded[PARTS_MAX];
    size_t     nframes;                /* zstd frames before the table */
    size_t     frame[PARTS_MAX];       /* their numbers among the parts */
} table_file_t;


static table_find_t  table_finds[] = {

    { "table of one frame", 12, 1, 0, { 0, 0 }, 0, ZMAP_OK },
    { "table of one frame with checksum", 12, 1, 0x80, { 0, 0 }, 0,
      ZMAP_OK },
    { "table of many frames", 12, 300, 0, { 0, 0 }, 0, ZMAP_OK },
    { "table of many frames with checksums", 12, 300, 0x80, { 0, 0 }, 0,
      ZMAP_OK },
    { "table that is all of the file", 0, 3, 0, { 0, 0 }, 0, ZMAP_OK },
    { "table of no frame", 0, 0, 0, { 0, 0 }, 0, ZMAP_OK },
    { "table of no frame behind something", 5, 0, 0x80, { 0, 0 }, 0,
      ZMAP_OK },
    { "lowest bits of the descriptor are ignored", 0, 1, 0x03, { 0, 0 }, 0,
      ZMAP_OK },
    { "and with checksums", 0, 1, 0x83, { 0, 0 }, 0, ZMAP_OK },

    { "reserved bit 2 is refused", 0, 1, 0x04, { 0, 0 }, 0,
      ZMAP_SEEK_TABLE },
    { "reserved bit 6 is refused", 0, 1, 0x40, { 0, 0 }, 0,
      ZMAP_SEEK_TABLE },
    { "reserved bits with checksums are refused", 0, 1, 0xfc, { 0, 0 }, 0,
      ZMAP_SEEK_TABLE },
    { "checksum flag that is not true is refused", 30, 3, 0,
      { 8 + 24 + 4, 0x80 }, 0, ZMAP_SEEK_TABLE },
    { "checksum flag that is missing is refused", 30, 3, 0x80,
      { 8 + 36 + 4, 0x80 }, 0, ZMAP_SEEK_TABLE },

    { "other end magic is no table", 12, 1, 0, { 8 + 8 + 5, 1 }, 0,
      ZMAP_EMPTY },
    { "last byte counts", 12, 1, 0, { 8 + 8 + 8, 0x80 }, 0, ZMAP_EMPTY },
    { "other magic is refused", 12, 1, 0, { 0, 1 }, 0, ZMAP_SEEK_TABLE },
    { "highest byte of the magic counts", 12, 1, 0, { 3, 1 }, 0,
      ZMAP_SEEK_TABLE },
    { "Frame_Size that is too large is refused", 12, 1, 0, { 4, 2 }, 0,
      ZMAP_SEEK_TABLE },
    { "Frame_Size that is larger by 2^31 is refused", 12, 1, 0, { 7, 0x80 },
      0, ZMAP_SEEK_TABLE },

    { "one frame fewer is refused", 20, 3, 0, { 8 + 24, 1 }, 0,
      ZMAP_SEEK_TABLE },
    { "more frames than the file has room for are refused", 20, 3, 0,
      { 8 + 24 + 1, 1 }, 0, ZMAP_SEEK_TABLE },
    { "2^29 frames do not fit by 32 bits", 20, 3, 0, { 8 + 24 + 3, 0x20 },
      0, ZMAP_SEEK_TABLE },
    { "2^31 frames are refused", 20, 3, 0, { 8 + 24 + 3, 0x80 }, 0,
      ZMAP_SEEK_TABLE },
    { "2^31 frames with checksums are refused", 20, 3, 0x80,
      { 8 + 36 + 3, 0x80 }, 0, ZMAP_SEEK_TABLE },

    { "table without its first byte is refused", 0, 3, 0, { 0, 0 }, 1,
      ZMAP_SEEK_TABLE },
    { "entries alone are refused", 0, 3, 0, { 0, 0 }, 8, ZMAP_SEEK_TABLE },
    { "16 bytes are no table", 0, 0, 0, { 0, 0 }, 1, ZMAP_EMPTY },
    { "footer alone is no table", 0, 3, 0, { 0, 0 }, 32, ZMAP_EMPTY },
    { "end magic alone is no table", 0, 3, 0, { 0, 0 }, 37, ZMAP_EMPTY },
    { "three bytes of it are no table", 0, 3, 0, { 0, 0 }, 38, ZMAP_EMPTY },
    { "no byte is no table", 0, 3, 0, { 0, 0 }, 41, ZMAP_EMPTY }
};


static table_walk_t  table_walks[] = {

    /* what agrees */

    { "sized frame", "r", "", { 3 }, 0, { 0, 0 }, 1, 0, 1, 3 },
    { "sized frames", "rdr", "", { 3, 256, 3 }, 0, { 0, 0 }, 1, 0, 1, 262 },
    { "raw frame without a size", "w", "", { 3 }, 0, { 0, 0 }, 1, 0, 1, 3 },
    { "frame without a size", "c", "", { 1000 }, 0, { 0, 0 }, 1, 0, 0,
      1000 },
    { "frame without a size may be empty", "c", "", { 0 }, 0, { 0, 0 }, 1, 0,
      0, 0 },
    { "and as large as its block may be", "c", "", { BLOCK_MAX }, 0,
      { 0, 0 }, 1, 0, 0, BLOCK_MAX },
    { "raw and compressed blocks, least", "m", "", { 3 }, 0, { 0, 0 }, 1, 0,
      0, 3 },
    { "raw and compressed blocks, most", "m", "", { BLOCK_MAX + 3 }, 0,
      { 0, 0 }, 1, 0, 0, BLOCK_MAX + 3 },
    { "frames without a size", "ccmc", "", { 10, 20, 30, 40 }, 0, { 0, 0 },
      1, 0, 0, 100 },
    { "some frames without a size", "rcwcr", "", { 3, 20, 3, 40, 3 }, 0,
      { 0, 0 }, 1, 0, 0, 69 },
    { "empty frames", "ecere", "", { 0, 7, 0, 3, 0 }, 0, { 0, 0 }, 1, 0, 0,
      10 },
    { "skippable frames have entries", "scsS", "", { 0, 9, 0, 0 }, 0,
      { 0, 0 }, 1, 0, 0, 9 },
    { "skippable frame like a table", "cSc", "", { 9, 0, 9 }, 0, { 0, 0 }, 1,
      0, 0, 18 },

    /* what does not */

    { "coded size of the first", "cc", "", { 10, 10 }, 0, { 8, 1 }, 0, 1, 0,
      0 },
    { "coded size of the last", "cc", "", { 10, 10 }, 0, { 16, 1 }, 0, 1, 0,
      0 },
    { "coded size by 2^31", "cc", "", { 10, 10 }, 0, { 11, 0x80 }, 0, 1, 0,
      0 },
    { "coded size of a skippable frame", "csc", "", { 10, 0, 10 }, 0,
      { 16, 1 }, 0, 1, 0, 0 },
    { "size of a skippable frame", "csc", "", { 10, 1, 10 }, 0, { 0, 0 }, 0,
      1, 0, 0 },
    { "size of a declared frame", "rcr", "", { 3, 10, 4 }, 0, { 0, 0 }, 0, 1,
      0, 0 },
    { "size of a declared frame, others sized, too", "rr", "", { 3, 2 }, 0,
      { 0, 0 }, 0, 1, 1, 6 },
    { "size of a declared frame with a compressed block", "dr", "",
      { 255, 3 }, 0, { 0, 0 }, 0, 1, 1, 259 },
    { "size of a raw frame without a declared one", "w", "", { 2 }, 0,
      { 0, 0 }, 0, 1, 1, 3 },
    { "size below the raw blocks", "m", "", { 2 }, 0, { 0, 0 }, 0, 1, 0, 0 },
    { "size above what blocks can hold", "m", "", { BLOCK_MAX + 4 }, 0,
      { 0, 0 }, 0, 1, 0, 0 },
    { "size above what the block can hold", "c", "", { BLOCK_MAX + 1 }, 0,
      { 0, 0 }, 0, 1, 0, 0 },
    { "size above the limit of the format", "c", "", { 0x40000001 }, 0,
      { 0, 0 }, 0, 1, 0, 0 },
    { "size of an empty frame", "ec", "", { 1, 10 }, 0, { 0, 0 }, 0, 1, 0,
      0 },
    { "entry too many", "cc", "", { 10, 10 }, 1, { 0, 0 }, 0, 1, 0, 0 },
    { "entry too few", "cc", "", { 10, 10 }, -1, { 0, 0 }, 0, 1, 0, 0 },
    { "no entry", "cc", "", { 10, 10 }, -2, { 0, 0 }, 0, 1, 0, 0 },
    { "no entry, all sized", "rr", "", { 3, 3 }, -2, { 0, 0 }, 0, 1, 1, 6 },
    { "skippable frame without an entry", "cs", "", { 10, 10 }, -1, { 0, 0 },
      0, 1, 0, 0 },
    { "reserved bit", "c", "", { 10 }, 0, { 8 + 8 + 4, 0x10 }, 0, 1, 0, 0 },
    { "checksum flag", "c", "", { 10 }, 0, { 8 + 8 + 4, 0x80 }, 0, 1, 0, 0 },
    { "number of frames", "c", "", { 10 }, 0, { 8 + 8, 2 }, 0, 1, 0, 0 },
    { "reserved bit, all sized", "r", "", { 3 }, 0, { 8 + 8 + 4, 0x10 }, 0,
      1, 1, 3 },

    /* what is none */

    { "other end magic", "c", "", { 10 }, 0, { 8 + 8 + 8, 1 }, 0, 0, 0, 0 },
    { "other variant of a skippable frame", "c", "", { 10 }, 0, { 0, 1 }, 0,
      0, 0, 0 },
    { "other variant, all sized", "r", "", { 3 }, 0, { 0, 1 }, 0, 0, 1, 3 },
    { "skippable frame behind it", "c", "s", { 10 }, 0, { 0, 0 }, 0, 0, 0,
      0 },
    { "frame behind it", "c", "r", { 10 }, 0, { 0, 0 }, 0, 0, 0, 0 },
    { "sized frame behind it", "r", "r", { 3 }, 0, { 0, 0 }, 0, 0, 1, 6 },
    { "table behind it that knows neither", "c", "T", { 10 }, 0, { 0, 0 }, 0,
      1, 0, 0 },
    { "table in a raw block at the end of the file", "c", "B", { 10 }, 0,
      { 0, 0 }, 0, 0, 0, 0 },
    { "table in a skippable frame like one", "c", "N", { 10 }, 0, { 0, 0 },
      0, 1, 0, 0 },
    { "table in another skippable frame", "c", "n", { 10 }, 0, { 0, 0 }, 0,
      0, 0, 0 },
    { "table inside of the frame that it tells of", "", "F", { 0 }, 0,
      { 0, 0 }, 0, 0, 0, 0 }
};


static void
table_append(table_file_t *file, const void *bytes, size_t size)
{
    uint8_t  *grown;

    grown = malloc(file->size + size);
    assert_non_null(grown);

    if (file->size != 0) {
        memcpy(grown, file->data, file->size);
    }

    memcpy(grown + file->size, bytes, size);
    free(file->data);

    file->data = grown;
    file->size += size;
}


static void
table_append_hex(table_file_t *file, const char *hex)
{
    size_t        i;
    uint8_t       bytes[128];
    unsigned int  byte;

    for (i = 0; hex[2 * i]; i++) {
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t) byte;
    }

    table_append(file, bytes, i);
}


static void
table_append_u32(table_file_t *file, uint32_t value)
{
    uint8_t  bytes[4];

    bytes[0] = (uint8_t) value;
    bytes[1] = (uint8_t) (value >> 8);
    bytes[2] = (uint8_t) (value >> 16);
    bytes[3] = (uint8_t) (value >> 24);

    table_append(file, bytes, 4);
}


static void
table_part(table_file_t *file, char kind)
{
    switch (kind) {

    case 'r':                                       /* 3 raw bytes */
        table_append_hex(file, "28B52FFD2003190000414243");
        break;

    case 'w':                                       /* without a size */
        table_append_hex(file, "28B52FFD0038190000414243");
        break;

    case 'c':                                       /* a compressed block */
        table_append_hex(file, "28B52FFD00381500000000");
        break;

    case 'm':                                       /* behind 3 raw bytes */
        table_append_hex(file, "28B52FFD00381800004142431500000000");
        break;

    case 'd':                                       /* that says 256 */
        table_append_hex(file, "28B52FFD6000001500000000");
        break;

    case 'e':
        table_append_hex(file, "28B52FFD2000010000");
        break;

    case 's':
        table_append_hex(file, "502A4D180400000001020304");
        break;

    case 'S':
        table_append_hex(file, "5E2A4D180400000001020304");
        break;

    case 'T':                                       /* a table of one */
        table_append_hex(file, "5E2A4D18110000000B0000000A000000"
                               "0100000000B1EA928F");
        break;

    case 'B':                                       /* the same as content */
        table_append_hex(file, "28B52FFD0038C90000"
                               "5E2A4D18110000000B0000000A000000"
                               "0100000000B1EA928F");
        break;

    case 'N':
    case 'n':
        table_append_hex(file, kind == 'N' ? "5E2A4D1821000000"
                                           : "502A4D1821000000");
        table_append_hex(file, "5E2A4D18190000000B0000000A000000"
                               "19000000000000000200000000B1EA928F");
        break;

    case 'F':                                       /* of itself and 17 bytes */
        table_append_hex(file, "28B52FFD00381400000000090100"
                               "5E2A4D181900000011000000000000002F000000"
                               "210000000200000000B1EA928F");
        break;

    default:
        fail();
    }
}


/* entries of so many bytes; the decoded sizes are taken from the row */

static void
table_append_table(table_file_t *file, const uint32_t *decoded,
    size_t nentries, size_t entry_size)
{
    size_t  i;

    file->table = file->size;

    table_append_u32(file, ZMAP_SEEKTABLE_MAGIC);
    table_append_u32(file, (uint32_t) (nentries * entry_size + 9));

    for (i = 0; i < nentries; i++) {
        table_append_u32(file, i < file->nparts ? (uint32_t) file->coded[i]
                                                : 0);
        table_append_u32(file, decoded[i]);

        if (entry_size == 12) {
            table_append_u32(file, 0x12345678);
        }
    }

    table_append_u32(file, (uint32_t) nentries);
    table_append(file, entry_size == 12 ? "\x81" : "\x02", 1);
    table_append_u32(file, 0x8f92eab1);
}


static void
table_make(table_file_t *file, const table_walk_t *row, size_t entry_size)
{
    size_t       before;
    const char  *part;

    memset(file, 0, sizeof(table_file_t));

    for (part = row->parts; *part; part++) {
        before = file->size;
        table_part(file, *part);

        if (*part != 's' && *part != 'S') {
            file->frame[file->nframes++] = file->nparts;
        }

        file->coded[file->nparts++] = file->size - before;
    }

    table_append_table(file, row->decoded,
                       (size_t) ((int) file->nparts + row->more), entry_size);

    file->data[file->table + row->flip.at] ^= row->flip.flip;

    for (part = row->after; *part; part++) {
        table_part(file, *part);
    }
}


static void
table_find(void **state)
{
    size_t             i, size, start, entry_size;
    uint8_t           *data;
    table_file_t       file;
    table_find_t      *row;
    zmap_seektable_t   table, before;

    static uint32_t    decoded[300];

    row = *state;
    entry_size = (row->descriptor & 0x80) ? 12 : 8;

    memset(&file, 0, sizeof(file));

    for (i = 0; i < row->before; i++) {
        table_append(&file, "x", 1);
    }

    table_append_table(&file, decoded, row->nframes, entry_size);
    start = file.table;

    file.data[file.size - 5] = row->descriptor;
    file.data[start + row->flip.at] ^= row->flip.flip;

    size = file.size - row->cut;
    data = unit_copy(file.data + row->cut, size);

    memset(&table, 0x5a, sizeof(table));
    memcpy(&before, &table, sizeof(table));

    assert_int_equal(zmap_seektable_find(&table, data, size), row->rc);

    if (row->rc == ZMAP_OK) {
        assert_int_equal(table.start, start);
        assert_int_equal(table.nframes, row->nframes);
        assert_int_equal(table.entry_size, entry_size);

    } else {
        assert_memory_equal(&table, &before, sizeof(table));
    }

    free(file.data);
    free(data);
}


static void
table_entries_are_read(void **state)
{
    size_t                  i, entry_size;
    table_file_t            file;
    zmap_seektable_t        table;
    zmap_seektable_entry_t  entry, before;

    static const uint32_t   decoded[] = { 0, 7, 0x40000000, 0x40000001,
                                          0xffffffff };

    (void) state;

    for (entry_size = 8; entry_size <= 12; entry_size += 4) {
        memset(&file, 0, sizeof(file));

        file.nparts = UNIT_COUNT(decoded);

        for (i = 0; i < file.nparts; i++) {
            file.coded[i] = 0xfffffff0 + i;
        }

        table_append_table(&file, decoded, file.nparts, entry_size);

        assert_int_equal(zmap_seektable_find(&table, file.data, file.size),
                         ZMAP_OK);
        memset(&before, 0x5a, sizeof(before));

        for (i = 0; i < 3; i++) {
            assert_int_equal(zmap_seektable_entry(&table, file.data, i,
                                                  &entry), ZMAP_OK);
            assert_int_equal(entry.coded, 0xfffffff0 + i);
            assert_int_equal(entry.decoded, decoded[i]);
        }

        for ( ; i < 10; i++) {
            entry = before;
            assert_int_equal(zmap_seektable_entry(&table, file.data, i,
                                                  &entry), ZMAP_SEEK_TABLE);
            assert_memory_equal(&entry, &before, sizeof(entry));
        }

        assert_int_equal(zmap_seektable_entry(&table, file.data, UINT64_MAX,
                                              &entry), ZMAP_SEEK_TABLE);
        free(file.data);
    }
}


/* more entries than the format allows, and a file that has room for them */

static void
table_of_too_many_frames_is_refused(void **state)
{
    uint8_t           *data;
    uint64_t           size, nframes;
    zmap_seektable_t   table;

    (void) state;

    for (nframes = ZMAP_SEEKTABLE_FRAMES_MAX;
         nframes <= ZMAP_SEEKTABLE_FRAMES_MAX + 1;
         nframes++)
    {
        size = 8 + 8 * nframes + 9;

        /* pages that nobody touches are no memory */

        data = calloc(1, size);
        assert_non_null(data);

        memcpy(data, "\x5e\x2a\x4d\x18\x09\0\0\x40", 8);
        memcpy(data + size - 9, "\0\0\0\x08\0\xb1\xea\x92\x8f", 9);

        if (nframes > ZMAP_SEEKTABLE_FRAMES_MAX) {
            data[4] = 0x11;
            data[size - 9] = 1;
        }

        assert_int_equal(zmap_seektable_find(&table, data, size),
                         nframes > ZMAP_SEEKTABLE_FRAMES_MAX ? ZMAP_SEEK_TABLE
                                                             : ZMAP_OK);
        free(data);
    }
}


static void
table_same_findings(const zmap_frames_t *a, const zmap_frames_t *b)
{
    assert_int_equal(a->frames, b->frames);
    assert_int_equal(a->skippable, b->skippable);
    assert_int_equal(a->sized, b->sized);
    assert_int_equal(a->tabled, b->tabled);
    assert_int_equal(a->table_lies, b->table_lies);
    assert_int_equal(a->nindex, b->nindex);
    assert_int_equal(a->index == NULL, b->index == NULL);

    if (a->sized || a->tabled) {
        assert_int_equal(a->content_size, b->content_size);
    }

    if (a->nindex != 0) {
        assert_memory_equal(a->index, b->index,
                            a->nindex * sizeof(zmap_frame_entry_t));
    }
}


static void
table_by_slices(const zmap_walk_t *whole, const uint8_t *data)
{
    uint64_t     n;
    zmap_rc_e    rc;
    zmap_walk_t  walk;

    for (n = 1; n < 20; n++) {
        zmap_walk_init(&walk, whole->size);

        do {
            rc = zmap_walk_run(&walk, data, n);
        } while (rc == ZMAP_AGAIN);

        assert_int_equal(rc, ZMAP_OK);
        table_same_findings(&walk.frames, &whole->frames);

        zmap_walk_free(&walk);
    }
}


/* the index has every zstd frame, at the sum of what comes before it */

static void
table_index(const table_file_t *file, const zmap_frames_t *frames,
    const uint32_t *decoded)
{
    size_t    i, n;
    uint64_t  at, total;

    n = 0;
    at = 0;
    total = 0;

    for (i = 0; i < file->nparts; i++) {

        if (n < file->nframes && file->frame[n] == i) {
            assert_int_equal(frames->index[n].coded, at);
            assert_int_equal(frames->index[n].decoded, total);
            n++;
        }

        at += file->coded[i];
        total += decoded[i];
    }

    assert_int_equal(frames->nindex, n);
    assert_int_equal(frames->content_size, total);
}


static void
table_walk(void **state)
{
    size_t         entry_size;
    zmap_walk_t    walk;
    table_file_t   file;
    table_walk_t  *row;

    row = *state;

    for (entry_size = 8; entry_size <= 12; entry_size += 4) {

        if (entry_size == 12 && row->flip.at >= 12) {
            /* the row means another byte */
            continue;
        }

        table_make(&file, row, entry_size);

        zmap_walk_init(&walk, file.size);

        assert_int_equal(zmap_walk_run(&walk, file.data, 0), ZMAP_OK);
        assert_int_equal(walk.offset, file.size);
        assert_int_equal(walk.frames.tabled, row->tabled);
        assert_int_equal(walk.frames.table_lies, row->lies);
        assert_int_equal(walk.frames.sized, row->sized);
        assert_int_equal(walk.frames.index != NULL,
                         row->sized || row->tabled);

        if (row->sized || row->tabled) {
            assert_int_equal(walk.frames.content_size, row->content);
        }

        if (row->tabled) {
            table_index(&file, &walk.frames, row->decoded);
        }

        table_by_slices(&walk, file.data);

        zmap_walk_free(&walk);
        free(file.data);
    }
}


/* a cut table is a cut frame, whatever it looks like */

static void
table_that_is_cut_is_truncated(void **state)
{
    size_t        cut;
    uint8_t      *data;
    zmap_walk_t   walk;
    table_file_t  file;

    static const table_walk_t  row = {
        .parts = "crcs", .after = "", .decoded = { 10, 3, 20, 0 }
    };

    (void) state;

    table_make(&file, &row, 8);

    for (cut = file.table + 1; cut < file.size; cut++) {
        data = unit_copy(file.data, cut);

        zmap_walk_init(&walk, cut);
        assert_int_equal(zmap_walk_run(&walk, data, 0), ZMAP_TRUNCATED);
        assert_int_equal(walk.offset, file.table);
        zmap_walk_free(&walk);

        free(data);
    }

    free(file.data);
}


/* with no byte of it wrong unless the file is a bad one without it */

static void
table_makes_no_file_bad(void **state)
{
    size_t        i;
    zmap_walk_t   walk;
    table_file_t  file;

    static const table_walk_t  row = {
        .parts = "crcs", .after = "", .decoded = { 10, 3, 20, 0 }
    };

    (void) state;

    table_make(&file, &row, 12);

    for (i = 8 * file.table; i < 8 * file.size; i++) {
        file.data[i / 8] ^= (uint8_t) (1 << i % 8);

        zmap_walk_init(&walk, file.size);

        if (i / 8 >= file.table + 8) {
            assert_int_equal(zmap_walk_run(&walk, file.data, 0), ZMAP_OK);
            table_by_slices(&walk, file.data);

            /* unless the flipped bit is ignored, or one of many sizes */

            assert_true(walk.frames.tabled || walk.frames.index == NULL);
            assert_false(walk.frames.tabled && walk.frames.table_lies);

        } else {
            (void) zmap_walk_run(&walk, file.data, 0);
            assert_false(walk.frames.tabled);
        }

        zmap_walk_free(&walk);
        file.data[i / 8] ^= (uint8_t) (1 << i % 8);
    }

    free(file.data);
}


static void
table_is_not_looked_for_by_the_first_frame(void **state)
{
    zmap_walk_t   walk;
    table_file_t  file;

    static const table_walk_t  row = {
        .parts = "cc", .after = "", .decoded = { 10, 3 }
    };

    (void) state;

    table_make(&file, &row, 8);

    zmap_walk_init(&walk, file.size);

    assert_int_equal(zmap_walk_first(&walk, file.data), ZMAP_OK);
    assert_int_equal(walk._tabled, ZMAP_TABLE_UNKNOWN);

    assert_int_equal(zmap_walk_run(&walk, file.data, 0), ZMAP_OK);
    assert_int_equal(walk.frames.tabled, 1);

    zmap_walk_free(&walk);
    free(file.data);
}


static void
table_that_is_not_trusted_leaves_the_index(void **state)
{
    zmap_walk_t   walk;
    table_file_t  file;

    static const table_walk_t  row = {
        .parts = "cc", .after = "", .decoded = { 10, 3 }
    };

    (void) state;

    table_make(&file, &row, 8);

    zmap_walk_init(&walk, file.size);
    assert_int_equal(zmap_walk_run(&walk, file.data, 0), ZMAP_OK);

    zmap_walk_distrust(&walk);

    assert_int_equal(walk.frames.tabled, 0);
    assert_int_equal(walk.frames.table_lies, 1);
    assert_int_equal(walk.frames.sized, 0);
    assert_int_equal(walk.frames.content_size, 13);
    table_index(&file, &walk.frames, row.decoded);

    assert_int_equal(zmap_walk_run(&walk, file.data, 0), ZMAP_OK);
    assert_int_equal(walk.frames.table_lies, 1);

    zmap_walk_free(&walk);
    free(file.data);
}


/* so many frames of one compressed block, and a table */

static void
table_of_many(size_t nframes, zmap_walk_t *walk)
{
    size_t    i, at, size;
    uint8_t  *data;

    static const uint8_t  frame[] = {
        0x28, 0xb5, 0x2f, 0xfd, 0, 0x38, 0x15, 0, 0, 0, 0
    };
    static const uint8_t  entry[] = { 11, 0, 0, 0, 2, 0, 0, 0 };
    static const uint8_t  footer[] = { 0, 0xb1, 0xea, 0x92, 0x8f };

    size = nframes * (sizeof(frame) + sizeof(entry)) + 17;
    data = malloc(size);
    assert_non_null(data);

    for (i = 0, at = 0; i < nframes; i++, at += sizeof(frame)) {
        memcpy(data + at, frame, sizeof(frame));
    }

    memcpy(data + at, "\x5e\x2a\x4d\x18", 4);
    at += 4;

    i = nframes * sizeof(entry) + 9;
    memcpy(data + at, &(uint32_t) { (uint32_t) i }, 4);
    at += 4;

    for (i = 0; i < nframes; i++, at += sizeof(entry)) {
        memcpy(data + at, entry, sizeof(entry));
    }

    memcpy(data + at, &(uint32_t) { (uint32_t) nframes }, 4);
    memcpy(data + at + 4, footer, sizeof(footer));

    zmap_walk_init(walk, size);
    assert_int_equal(zmap_walk_run(walk, data, 0), ZMAP_OK);

    free(data);
}


static void
table_has_the_limit_of_the_index(void **state)
{
    size_t       n;
    zmap_walk_t  walk;

    (void) state;

    n = ZMAP_FRAME_INDEX_MAX;

    table_of_many(n, &walk);
    assert_int_equal(walk.frames.tabled, 1);
    assert_int_equal(walk.frames.nindex, n);
    assert_int_equal(walk.frames.content_size, 2 * n);
    assert_int_equal(walk.frames.index[n - 1].decoded, 2 * (n - 1));
    zmap_walk_free(&walk);

    table_of_many(n + 1, &walk);
    assert_int_equal(walk.frames.tabled, 0);
    assert_int_equal(walk.frames.table_lies, 0);
    assert_null(walk.frames.index);
    zmap_walk_free(&walk);
}


static const struct CMUnitTest  table_others[] = {
    cmocka_unit_test(table_entries_are_read),
    cmocka_unit_test(table_of_too_many_frames_is_refused),
    cmocka_unit_test(table_that_is_cut_is_truncated),
    cmocka_unit_test(table_makes_no_file_bad),
    cmocka_unit_test(table_is_not_looked_for_by_the_first_frame),
    cmocka_unit_test(table_that_is_not_trusted_leaves_the_index),
    cmocka_unit_test(table_has_the_limit_of_the_index)
};


int
main(void)
{
    size_t             n;
    struct CMUnitTest  tests[UNIT_COUNT(table_finds)
                             + UNIT_COUNT(table_walks)
                             + UNIT_COUNT(table_others)];

    n = UNIT_ROWS(tests, table_finds, table_find);
    n += UNIT_ROWS(tests + n, table_walks, table_walk);

    memcpy(tests + n, table_others, sizeof(table_others));
    n += UNIT_COUNT(table_others);

    return unit_run("seektable", tests, n);
}
