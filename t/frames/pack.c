
/*
 * Packs a body into many frames, for tests and benchmarks:
 *
 *     pack FRAME LEVEL [sizes] [checksums] [table] < body > file
 *
 * FRAME decoded bytes make a frame, the last one has the rest.  sizes:
 * Frame_Content_Size in each header; checksums: Content_Checksum; table: a
 * seek table in a skippable frame at the end (the Zstandard Seekable Format
 * 0.1.0, without its checksums).
 */


#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>


#define PACK_SKIPPABLE  0x184d2a5e
#define PACK_SEEKABLE   0x8f92eab1


typedef struct {
    uint32_t  *pairs;       /* coded and decoded size of each frame */
    size_t     n;           /* frames */
    size_t     capacity;
} pack_table_t;


static void
pack_die(const char *what)
{
    fprintf(stderr, "pack: %s\n", what);
    exit(1);
}


static void
pack_write(const void *data, size_t size)
{
    if (fwrite(data, 1, size, stdout) != size) {
        pack_die("cannot write");
    }
}


static void
pack_write32(uint32_t value)
{
    uint8_t  bytes[4];

    bytes[0] = value & 0xff;
    bytes[1] = value >> 8 & 0xff;
    bytes[2] = value >> 16 & 0xff;
    bytes[3] = value >> 24;

    pack_write(bytes, 4);
}


static void
pack_add(pack_table_t *table, size_t coded, size_t decoded)
{
    if (table->n == table->capacity) {
        table->capacity = table->capacity * 2 + 1024;
        table->pairs = realloc(table->pairs, table->capacity * 8);
        if (table->pairs == NULL) {
            pack_die("no memory");
        }
    }

    table->pairs[2 * table->n] = (uint32_t) coded;
    table->pairs[2 * table->n + 1] = (uint32_t) decoded;
    table->n++;
}


static void
pack_write_table(const pack_table_t *table)
{
    size_t  i;

    pack_write32(PACK_SKIPPABLE);
    pack_write32((uint32_t) (table->n * 8 + 9));

    for (i = 0; i < 2 * table->n; i++) {
        pack_write32(table->pairs[i]);
    }

    pack_write32((uint32_t) table->n);
    pack_write("", 1);
    pack_write32(PACK_SEEKABLE);
}


static void
pack_frames(ZSTD_CCtx *cctx, size_t size, pack_table_t *table)
{
    char    *in, *out;
    size_t   n, coded, room;

    room = ZSTD_compressBound(size);
    in = malloc(size);
    out = malloc(room);

    if (in == NULL || out == NULL) {
        pack_die("no memory");
    }

    while ((n = fread(in, 1, size, stdin)) > 0) {

        coded = ZSTD_compress2(cctx, out, room, in, n);
        if (ZSTD_isError(coded)) {
            pack_die(ZSTD_getErrorName(coded));
        }

        pack_add(table, coded, n);
        pack_write(out, coded);
    }

    free(in);
    free(out);
}


static int
pack_option(int argc, char **argv, const char *name)
{
    int  i;

    for (i = 3; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return 1;
        }
    }

    return 0;
}


int
main(int argc, char **argv)
{
    size_t        size;
    ZSTD_CCtx    *cctx;
    pack_table_t  table;

    if (argc < 3) {
        pack_die("FRAME LEVEL [sizes] [checksums] [table]");
    }

    memset(&table, 0, sizeof(pack_table_t));

    size = strtoull(argv[1], NULL, 10);
    cctx = ZSTD_createCCtx();

    if (size == 0 || size > UINT32_MAX || cctx == NULL) {
        pack_die("no such size of frames");
    }

    ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, atoi(argv[2]));
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag,
                           pack_option(argc, argv, "sizes"));
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag,
                           pack_option(argc, argv, "checksums"));

    pack_frames(cctx, size, &table);

    if (pack_option(argc, argv, "table")) {
        pack_write_table(&table);
    }

    if (fflush(stdout) != 0) {
        pack_die("cannot write");
    }

    return 0;
}
