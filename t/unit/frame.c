
/*
 * The frame walker: golden bytes, real files of libzstd, cuts, resumed walks.
 */


#include <dlfcn.h>
#include <stdio.h>

#include <zstd.h>

#include "unit.h"
#include "zmap_frame.h"


#define MAGIC      "28B52FFD"
#define SKIPPABLE  "502A4D18" "00000000" "5F2A4D18" "00000000"


/* a whole file in hex and what the walk says of it */

typedef struct {
    const char  *name;
    const char  *hex;
    zmap_rc_e    rc;
    uint64_t     offset;
} frame_verdict_t;


/* a well formed file in hex and what the walk found */

typedef struct {
    const char     *name;
    const char     *hex;
    zmap_frames_t   frames;    /* index aside; nindex as expected */
} frame_found_t;


/* a frame header in hex */

typedef struct {
    const char           *name;
    const char           *hex;
    zmap_rc_e             rc;
    zmap_frame_header_t   header;
} frame_header_t;


/* a file made with libzstd: its parts one after the other */

typedef struct {
    int     level;
    int     checksum;
    int     declared;     /* Frame_Content_Size is written */
    size_t  decoded;
} frame_zstd_t;


typedef struct {
    const char    *name;
    const char    *parts;       /* 'z': next frame, 's': a skippable one */
    frame_zstd_t   zstd[3];
} frame_file_t;


/* the begin of a file in hex and how far skipping goes in it */

typedef struct {
    const char  *name;
    const char  *hex;
    size_t       end;
    size_t       pos;
    zmap_rc_e    rc;
    size_t       after;
} frame_skip_t;


/* a file in hex and what the walk to its first frame says */

typedef struct {
    const char  *name;
    const char  *hex;
    zmap_rc_e    rc;
    uint64_t     offset;
    uint64_t     frames;
    uint64_t     skippable;
    uint64_t     window;
} frame_first_t;


typedef struct {
    uint8_t   *data;            /* exact size */
    size_t     size;
    size_t     frames;
    size_t     skippable;
    uint64_t   coded[3];
    uint64_t   decoded[4];
    int        sized;
    int        checksum;
} frame_made_t;


static frame_verdict_t  frame_verdicts[] = {

    /* what is no file of frames */

    { "empty file is empty", "", ZMAP_EMPTY, 0 },
    { "skippable frame alone is empty", "5E2A4D18" "05000000" "68656C6C6F",
      ZMAP_EMPTY, 13 },
    { "skippable frames alone are empty", SKIPPABLE, ZMAP_EMPTY, 16 },
    { "text is no frame", "3C68746D6C3E", ZMAP_MAGIC, 0 },
    { "one foreign byte is no frame", "00", ZMAP_MAGIC, 0 },
    { "three foreign bytes are no frame", "28B500", ZMAP_MAGIC, 0 },
    { "gzip file is no frame", "1F8B0800", ZMAP_MAGIC, 0 },
    { "frame of zstd 0.5 is refused", "25B52FFD" "00", ZMAP_MAGIC, 0 },
    { "frame of zstd 0.6 is refused", "26B52FFD" "00", ZMAP_MAGIC, 0 },
    { "frame of zstd 0.7 is refused", "27B52FFD" "00", ZMAP_MAGIC, 0 },
    { "dictionary is no frame", "37A430EC" "00000000", ZMAP_MAGIC, 0 },
    { "magic number in the other byte order is refused", "FD2FB528" "00",
      ZMAP_MAGIC, 0 },
    { "magic number below the skippable ones is refused",
      "4F2A4D18" "00000000", ZMAP_MAGIC, 0 },
    { "magic number above the skippable ones is refused",
      "602A4D18" "00000000", ZMAP_MAGIC, 0 },

    /* golden frames */

    { "empty content with checksum is whole",
      MAGIC "24" "00" "010000" "99E9D851", ZMAP_OK, 13 },
    { "rle block of 128 KiB is whole", MAGIC "00" "38" "030010" "41",
      ZMAP_OK, 10 },
    { "rle block of 128 KiB and 1 byte is refused",
      MAGIC "00" "38" "0B0010" "41", ZMAP_BLOCK, 6 },
    { "content size of 1 TiB in one small block is refused",
      MAGIC "E0" "0000000000010000" "2B0000" "42", ZMAP_CONTENT_SIZE, 0 },
    { "reserved bit is refused", MAGIC "08" "38" "010000", ZMAP_HEADER, 0 },
    { "unused bit is ignored", MAGIC "10" "38" "010000", ZMAP_OK, 9 },
    { "largest window of the format is walked", MAGIC "00" "FF" "010000",
      ZMAP_OK, 9 },

    /* blocks */

    { "reserved block type is refused", MAGIC "00" "38" "070000",
      ZMAP_BLOCK, 6 },
    { "reserved type of the second block is refused",
      MAGIC "00" "38" "000000" "060000", ZMAP_BLOCK, 9 },
    { "raw block of the window size is whole",
      MAGIC "20" "02" "110000" "4142", ZMAP_OK, 11 },
    { "raw block above the window is refused",
      MAGIC "20" "02" "190000" "414243", ZMAP_BLOCK, 6 },
    { "rle block above the window is refused",
      MAGIC "20" "02" "1B0000" "41", ZMAP_BLOCK, 6 },
    { "compressed block above the window is refused",
      MAGIC "20" "02" "1D0000" "414243", ZMAP_BLOCK, 6 },
    { "rle block above a window of 1 KiB is refused",
      MAGIC "00" "00" "0B2000" "41", ZMAP_BLOCK, 6 },
    { "rle block of a window of 1 KiB is whole",
      MAGIC "00" "00" "032000" "41", ZMAP_OK, 10 },
    { "rle block of no bytes is whole", MAGIC "00" "38" "030000" "41",
      ZMAP_OK, 10 },
    { "rle block in a frame without content is refused",
      MAGIC "20" "00" "030000" "41", ZMAP_BLOCK, 6 },
    { "empty last block ends the frame",
      MAGIC "20" "03" "180000" "414243" "010000", ZMAP_OK, 15 },

    /* cuts */

    { "cut magic number is truncated", "28B52F", ZMAP_TRUNCATED, 0 },
    { "magic number alone is truncated", MAGIC, ZMAP_TRUNCATED, 0 },
    { "cut window descriptor is truncated", MAGIC "00", ZMAP_TRUNCATED, 0 },
    { "cut content size is truncated", MAGIC "E0" "00000000000001",
      ZMAP_TRUNCATED, 0 },
    { "reserved bit in a cut header is refused", MAGIC "08", ZMAP_HEADER,
      0 },
    { "frame without blocks is truncated", MAGIC "20" "00", ZMAP_TRUNCATED,
      6 },
    { "cut block header is truncated", MAGIC "20" "00" "0100",
      ZMAP_TRUNCATED, 6 },
    { "frame without a last block is truncated", MAGIC "20" "00" "000000",
      ZMAP_TRUNCATED, 9 },
    { "cut raw block is truncated", MAGIC "20" "02" "110000" "41",
      ZMAP_TRUNCATED, 6 },
    { "cut rle block is truncated", MAGIC "20" "02" "130000",
      ZMAP_TRUNCATED, 6 },
    { "cut checksum is truncated", MAGIC "24" "00" "010000" "99E9D8",
      ZMAP_TRUNCATED, 6 },
    { "cut magic number of a skippable frame is truncated", "5E2A",
      ZMAP_TRUNCATED, 0 },
    { "first byte of a skippable frame is truncated", "5F",
      ZMAP_TRUNCATED, 0 },
    { "cut size of a skippable frame is truncated", "5E2A4D18" "050000",
      ZMAP_TRUNCATED, 0 },
    { "cut skippable frame is truncated", "5E2A4D18" "05000000" "68656C6C",
      ZMAP_TRUNCATED, 0 },
    { "skippable frame of 4 GiB is truncated", "5E2A4D18" "FFFFFFFF" "00",
      ZMAP_TRUNCATED, 0 },
    { "cut second frame is truncated", MAGIC "20" "00" "010000" "28B5",
      ZMAP_TRUNCATED, 9 },

    /* what follows the frames */

    { "one byte over is refused", MAGIC "20" "00" "010000" "00",
      ZMAP_MAGIC, 9 },
    { "newline over is refused", MAGIC "20" "00" "010000" "0A", ZMAP_MAGIC,
      9 },
    { "checksum that nobody announced is refused",
      MAGIC "20" "00" "010000" "99E9D851", ZMAP_MAGIC, 9 },
    { "zeros over are refused", MAGIC "20" "00" "010000" "0000000000000000",
      ZMAP_MAGIC, 9 },
    { "byte over after a skippable frame is refused",
      MAGIC "20" "00" "010000" "502A4D18" "01000000" "AA" "AA",
      ZMAP_MAGIC, 18 },

    /* content sizes */

    { "content size below the raw bytes is refused",
      MAGIC "20" "02" "080000" "41" "110000" "4243", ZMAP_CONTENT_SIZE, 0 },
    { "content size above the raw bytes is refused",
      MAGIC "20" "03" "110000" "4142", ZMAP_CONTENT_SIZE, 0 },
    { "content size above the rle bytes is refused",
      MAGIC "20" "03" "130000" "41", ZMAP_CONTENT_SIZE, 0 },
    { "content size of an empty block is refused",
      MAGIC "20" "05" "010000", ZMAP_CONTENT_SIZE, 0 },
    { "content size that a compressed block can hold passes",
      MAGIC "60" "0001" "150000" "0000", ZMAP_OK, 12 },
    { "largest content size that a compressed block can hold passes",
      MAGIC "A0" "00000200" "150000" "0000", ZMAP_OK, 14 },
    { "content size above what a compressed block can hold is refused",
      MAGIC "A0" "01000200" "150000" "0000", ZMAP_CONTENT_SIZE, 0 },
    { "content size above what raw and compressed blocks hold is refused",
      MAGIC "A0" "02000200" "080000" "41" "150000" "0000",
      ZMAP_CONTENT_SIZE, 0 },
    { "largest content size that raw and compressed blocks hold passes",
      MAGIC "A0" "01000200" "080000" "41" "150000" "0000", ZMAP_OK, 18 },
    { "content size below the raw bytes beside a compressed block is refused",
      MAGIC "20" "02" "140000" "0000" "100000" "4142" "090000" "43",
      ZMAP_CONTENT_SIZE, 0 },
    { "lying second frame is found at its begin",
      MAGIC "20" "00" "010000" MAGIC "20" "05" "010000",
      ZMAP_CONTENT_SIZE, 9 },
    { "largest content size is no overflow",
      MAGIC "E0" "FFFFFFFFFFFFFFFF" "150000" "0000", ZMAP_CONTENT_SIZE, 0 }
};


static frame_found_t  frame_founds[] = {

    { "empty frame has size 0", MAGIC "20" "00" "010000",
      { .frames = 1, .sized = 1, .nindex = 1 } },
    { "declared size is found", MAGIC "20" "03" "190000" "414243",
      { .frames = 1, .content_size = 3, .window = 3, .sized = 1,
        .nindex = 1 } },
    { "size of raw and rle blocks is found without a declared one",
      MAGIC "00" "38" "180000" "414243" "030010" "41",
      { .frames = 1, .content_size = 131075, .window = 131072, .sized = 1,
        .nindex = 1 } },
    { "size of compressed blocks is unknown without a declared one",
      MAGIC "00" "38" "180000" "414243" "150000" "0000",
      { .frames = 1, .window = 131072 } },
    { "compressed block of an earlier frame does not count",
      MAGIC "20" "03" "150000" "0000" MAGIC "00" "38" "190000" "414243",
      { .frames = 2, .content_size = 6, .window = 131072, .sized = 1,
        .nindex = 2 } },
    { "unknown size of the first frame is of the file",
      MAGIC "00" "38" "150000" "0000" MAGIC "20" "03" "190000" "414243",
      { .frames = 2, .window = 131072 } },
    { "unknown size of the last frame is of the file",
      MAGIC "20" "03" "190000" "414243" MAGIC "00" "38" "150000" "0000",
      { .frames = 2, .window = 131072 } },
    { "checksum of every frame is found",
      MAGIC "24" "00" "010000" "99E9D851" MAGIC "24" "00" "010000" "99E9D851",
      { .frames = 2, .sized = 1, .checksum = 1, .nindex = 2 } },
    { "one frame without checksum is noticed",
      MAGIC "24" "00" "010000" "99E9D851" MAGIC "20" "00" "010000",
      { .frames = 2, .sized = 1, .nindex = 2 } },
    { "largest window is kept",
      MAGIC "00" "38" "010000" MAGIC "00" "68" "010000"
      MAGIC "00" "40" "010000",
      { .frames = 3, .window = 8 * 1024 * 1024, .sized = 1, .nindex = 3 } },
    { "first dictionary is kept",
      MAGIC "20" "00" "010000" MAGIC "23" "07000000" "00" "010000"
      MAGIC "21" "09" "00" "010000",
      { .frames = 3, .dictionary_id = 7, .sized = 1, .nindex = 3 } },
    { "dictionary of number 0 is none", MAGIC "21" "00" "00" "010000",
      { .frames = 1, .sized = 1, .nindex = 1 } },
    { "skippable frames are counted apart",
      SKIPPABLE MAGIC "20" "00" "010000" SKIPPABLE,
      { .frames = 1, .skippable = 4, .sized = 1, .nindex = 1 } }
};


static frame_header_t  frame_headers[] = {

    { "no bytes are a cut header", "", ZMAP_TRUNCATED, { 0 } },
    { "foreign bytes are no header", "28B52F00" "20", ZMAP_MAGIC, { 0 } },
    { "skippable frame has no zstd header", "502A4D18" "00", ZMAP_MAGIC,
      { 0 } },
    { "header of 6 bytes is cut at 5", MAGIC "00", ZMAP_TRUNCATED, { 0 } },
    { "header of 18 bytes is cut at 17",
      MAGIC "C7" "38" "01020304" "11223344556677", ZMAP_TRUNCATED, { 0 } },
    { "reserved bit makes the header invalid", MAGIC "28" "00", ZMAP_HEADER,
      { 0 } },
    { "least header has a window only", MAGIC "00" "00", ZMAP_OK,
      { .window = 1024, .block_max = 1024, .size = 6 } },
    { "bytes after the header are not looked at", MAGIC "00" "00" "FFFFFF",
      ZMAP_OK, { .window = 1024, .block_max = 1024, .size = 6 } },
    { "largest header has every field",
      MAGIC "C7" "38" "01020304" "1122334455667788", ZMAP_OK,
      { .window = 131072, .content_size = 0x8877665544332211u,
        .dictionary_id = 0x04030201, .block_max = 131072, .size = 18,
        .sized = 1, .checksum = 1 } },
    { "content size of 1 byte is the window", MAGIC "20" "FF", ZMAP_OK,
      { .window = 255, .content_size = 255, .block_max = 255, .size = 6,
        .sized = 1 } },
    { "content size of 0 is a window of 0", MAGIC "20" "00", ZMAP_OK,
      { .size = 6, .sized = 1 } },
    { "content size of 2 bytes begins at 256", MAGIC "60" "0000", ZMAP_OK,
      { .window = 256, .content_size = 256, .block_max = 256, .size = 7,
        .sized = 1 } },
    { "content size of 2 bytes ends at 65791", MAGIC "60" "FFFF", ZMAP_OK,
      { .window = 65791, .content_size = 65791, .block_max = 65791,
        .size = 7, .sized = 1 } },
    { "content size of 4 bytes has no bias", MAGIC "A0" "01000000", ZMAP_OK,
      { .window = 1, .content_size = 1, .block_max = 1, .size = 9,
        .sized = 1 } },
    { "content size of 8 bytes is read whole",
      MAGIC "E0" "FFFFFFFFFFFFFFFF", ZMAP_OK,
      { .window = UINT64_MAX, .content_size = UINT64_MAX,
        .block_max = 131072, .size = 13, .sized = 1 } },
    { "content size beside a window is no window", MAGIC "40" "38" "0000",
      ZMAP_OK,
      { .window = 131072, .content_size = 256, .block_max = 131072,
        .size = 8, .sized = 1 } },
    { "dictionary number of 1 byte is read", MAGIC "21" "FE" "00", ZMAP_OK,
      { .dictionary_id = 0xfe, .size = 7, .sized = 1 } },
    { "dictionary number of 2 bytes is read", MAGIC "22" "FEFF" "00",
      ZMAP_OK, { .dictionary_id = 0xfffe, .size = 8, .sized = 1 } },
    { "dictionary number of 4 bytes is read", MAGIC "23" "FEFFFFFF" "00",
      ZMAP_OK, { .dictionary_id = 0xfffffffe, .size = 10, .sized = 1 } },
    { "window of 8 MiB is 68", MAGIC "00" "68", ZMAP_OK,
      { .window = 8388608, .block_max = 131072, .size = 6 } },
    { "window above 8 MiB is 69", MAGIC "00" "69", ZMAP_OK,
      { .window = 9437184, .block_max = 131072, .size = 6 } },
    { "window below 128 KiB limits the blocks", MAGIC "00" "37", ZMAP_OK,
      { .window = 122880, .block_max = 122880, .size = 6 } },
    { "largest window is FF", MAGIC "00" "FF", ZMAP_OK,
      { .window = (1ull << 41) + 7 * (1ull << 38), .block_max = 131072,
        .size = 6 } }
};


static frame_file_t  frame_files[] = {

    { "frame of level 1 is walked", "z", { { 1, 0, 1, 3000 } } },
    { "frame of level 19 with checksum is walked", "z",
      { { 19, 1, 1, 3000 } } },
    { "frame of a negative level is walked", "z", { { -5, 1, 1, 3000 } } },
    { "frame without content size is walked", "z", { { 3, 0, 0, 3000 } } },
    { "frame without content size, with checksum, is walked", "z",
      { { 3, 1, 0, 3000 } } },
    { "frame of no content is walked", "z", { { 3, 1, 1, 0 } } },
    { "frame of no content and no content size is walked", "z",
      { { 3, 1, 0, 0 } } },
    { "frame of one byte is walked", "z", { { 3, 1, 1, 1 } } },
    { "frame of several blocks is walked", "z", { { 3, 1, 1, 700000 } } },
    { "frame of several blocks without content size is walked", "z",
      { { 3, 0, 0, 700000 } } },
    { "several frames are walked", "zzz",
      { { 1, 1, 1, 2000 }, { 3, 0, 1, 300000 }, { 9, 1, 1, 5 } } },
    { "several frames, one without content size, are walked", "zzz",
      { { 1, 1, 1, 2000 }, { 3, 1, 0, 2000 }, { 9, 1, 1, 2000 } } },
    { "skippable frame first is walked", "sz", { { 3, 1, 1, 2000 } } },
    { "skippable frame last is walked", "zs", { { 3, 1, 1, 2000 } } },
    { "skippable frames everywhere are walked", "sszsszsszss",
      { { 3, 1, 1, 2000 }, { 3, 1, 1, 0 }, { 3, 1, 1, 2000 } } },
    { "frames as pzstd writes them are walked", "szszsz",
      { { 3, 1, 0, 2000 }, { 3, 1, 0, 2000 }, { 3, 1, 0, 0 } } }
};


/* a zstd frame need not be whole: its magic number is where skipping ends */

static frame_skip_t  frame_skips[] = {

    { "in no bytes nothing is skipped", "", 0, 0, ZMAP_OK, 0 },
    { "zstd frame is not skipped", MAGIC "00", 5, 0, ZMAP_OK, 0 },
    { "skippable frames are skipped to a frame", SKIPPABLE MAGIC, 20, 0,
      ZMAP_OK, 16 },
    { "skippable frames are skipped to the end of the file", SKIPPABLE, 16,
      0, ZMAP_OK, 16 },
    { "skipping begins where it is told", SKIPPABLE MAGIC, 20, 8, ZMAP_OK,
      16 },
    { "bytes before where it begins are not looked at",
      "FF" SKIPPABLE MAGIC, 21, 1, ZMAP_OK, 17 },
    { "content that looks like a frame is skipped",
      "5A2A4D18" "04000000" MAGIC MAGIC, 16, 0, ZMAP_OK, 12 },
    { "every variant is skipped",
      "512A4D18" "00000000" "582A4D18" "01000000" "28", 17, 0, ZMAP_OK, 17 },

    { "end of 0 skips nothing", SKIPPABLE, 0, 0, ZMAP_OK, 0 },
    { "end where it begins skips nothing", SKIPPABLE, 8, 8, ZMAP_OK, 8 },
    { "end before where it begins skips nothing", SKIPPABLE, 4, 8, ZMAP_OK,
      8 },
    { "frame that begins before the end is skipped whole", SKIPPABLE, 1, 0,
      ZMAP_OK, 8 },
    { "content reaches behind the end", "502A4D18" "04000000" "AAAAAAAA"
      MAGIC, 9, 0, ZMAP_OK, 12 },
    { "frame that begins at the end is not skipped", SKIPPABLE, 8, 0,
      ZMAP_OK, 8 },
    { "frame that begins one before the end is skipped", SKIPPABLE, 9, 0,
      ZMAP_OK, 16 },
    { "junk at the end is not looked at", "502A4D18" "00000000" "00FF", 8, 0,
      ZMAP_OK, 8 },
    { "cut frame at the end is not looked at", "502A4D18" "00000000" "50",
      8, 0, ZMAP_OK, 8 },

    { "junk is no frame", "00112233", 4, 0, ZMAP_MAGIC, 0 },
    { "junk behind a skippable frame is no frame",
      "502A4D18" "00000000" "00FF", 10, 0, ZMAP_MAGIC, 8 },
    { "junk before the end is found", "502A4D18" "00000000" "00FF", 9, 0,
      ZMAP_MAGIC, 8 },
    { "dictionary is not skipped", "37A430EC" "00000000", 8, 0, ZMAP_MAGIC,
      0 },
    { "skippable frame of 4 GiB is cut", "5E2A4D18" "FFFFFFFF" "00", 9, 0,
      ZMAP_TRUNCATED, 0 },
    { "skippable frame of one byte too many is cut",
      "502A4D18" "00000000" "502A4D18" "02000000" "AA", 17, 0,
      ZMAP_TRUNCATED, 8 }
};


static frame_first_t  frame_firsts[] = {

    { "header at the begin is the first", MAGIC "00" "00" "010000",
      ZMAP_OK, 6, 1, 0, 1024 },
    { "header after skippable frames is the first",
      SKIPPABLE MAGIC "00" "38" "010000", ZMAP_OK, 22, 1, 2, 131072 },
    { "header of the second frame is not read",
      MAGIC "00" "38" "010000" MAGIC "00" "70" "010000",
      ZMAP_OK, 6, 1, 0, 131072 },
    { "block behind the header is not read", MAGIC "00" "38" "070000",
      ZMAP_OK, 6, 1, 0, 131072 },
    { "file that ends behind the header has a first", MAGIC "00" "38",
      ZMAP_OK, 6, 1, 0, 131072 },
    { "junk behind a whole frame is not read",
      MAGIC "20" "00" "010000" "FF", ZMAP_OK, 6, 1, 0, 0 },

    { "empty file has no first", "", ZMAP_EMPTY, 0, 0, 0, 0 },
    { "skippable frames have no first", SKIPPABLE, ZMAP_EMPTY, 16, 0, 2, 0 },
    { "text has no first", "3C68746D6C3E", ZMAP_MAGIC, 0, 0, 0, 0 },
    { "junk behind a skippable frame is no first",
      "502A4D18" "00000000" "FF", ZMAP_MAGIC, 8, 0, 1, 0 },
    { "cut header is no first", MAGIC "00", ZMAP_TRUNCATED, 0, 0, 0, 0 },
    { "cut magic number is no first", SKIPPABLE "28B5", ZMAP_TRUNCATED, 16,
      0, 2, 0 },
    { "cut skippable frame is no first", "502A4D18" "02000000" "AA",
      ZMAP_TRUNCATED, 0, 0, 0, 0 },
    { "header with the reserved bit is no first", MAGIC "08" "38" "010000",
      ZMAP_HEADER, 0, 0, 0, 0 }
};


static int  frame_memory_is_short;


/*
 * Takes the place of the allocator's function in this program, so that the
 * index can be made to fail.  Valgrind leaves it in place when it is run with
 * --soname-synonyms=somalloc=nouserintercepts.
 */

extern void *__interceptor_realloc(void *p, size_t size)
    __attribute__((weak));


void *
realloc(void *p, size_t size)
{
    void  *(*next)(void *, size_t);

    if (frame_memory_is_short) {
        return NULL;
    }

    if (__interceptor_realloc) {
        return __interceptor_realloc(p, size);
    }

    *(void **) &next = dlsym(RTLD_NEXT, "realloc");

    return next(p, size);
}


static uint8_t *
frame_unhex(const char *hex, size_t *size)
{
    size_t         i;
    uint8_t       *data;
    unsigned int   byte;

    *size = strlen(hex) / 2;
    data = unit_copy(hex, *size);

    for (i = 0; i < *size; i++) {
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        data[i] = (uint8_t) byte;
    }

    return data;
}


static void
frame_same_findings(const zmap_frames_t *a, const zmap_frames_t *b)
{
    assert_true(a->frames == b->frames);
    assert_true(a->skippable == b->skippable);
    assert_true(a->window == b->window);
    assert_int_equal(a->dictionary_id, b->dictionary_id);
    assert_int_equal(a->sized, b->sized);
    assert_int_equal(a->checksum, b->checksum);
    assert_int_equal(a->nindex, b->nindex);

    if (a->sized) {
        assert_true(a->content_size == b->content_size);
    }
}


static void
frame_same_index(const zmap_frames_t *a, const zmap_frames_t *b)
{
    size_t  i;

    for (i = 0; i < a->nindex; i++) {
        assert_true(a->index[i].coded == b->index[i].coded);
        assert_true(a->index[i].decoded == b->index[i].decoded);
    }
}


/* a walk of so many steps at a time is the walk in one go */

static void
frame_resumed(const zmap_walk_t *whole, const uint8_t *data,
    uint64_t max_blocks, zmap_rc_e expected)
{
    uint64_t     before;
    zmap_rc_e    rc;
    zmap_walk_t  walk;

    zmap_walk_init(&walk, whole->size);

    for ( ;; ) {
        before = walk.offset;
        rc = zmap_walk_run(&walk, data, max_blocks);

        if (rc != ZMAP_AGAIN) {
            break;
        }

        assert_true(walk.offset > before);
    }

    assert_int_equal(rc, expected);
    assert_true(walk.offset == whole->offset);
    frame_same_findings(&walk.frames, &whole->frames);
    frame_same_index(&walk.frames, &whole->frames);

    zmap_walk_free(&walk);
}


static zmap_rc_e
frame_walk(zmap_walk_t *walk, const uint8_t *data, size_t size)
{
    zmap_rc_e  rc;

    zmap_walk_init(walk, size);

    rc = zmap_walk_run(walk, data, 0);

    frame_resumed(walk, data, 1, rc);
    frame_resumed(walk, data, 3, rc);

    return rc;
}


static void
frame_verdict(void **state)
{
    size_t            size;
    uint8_t          *data;
    zmap_walk_t       walk;
    frame_verdict_t  *row;

    row = *state;
    data = frame_unhex(row->hex, &size);

    assert_int_equal(frame_walk(&walk, data, size), row->rc);
    assert_int_equal(walk.offset, row->offset);

    assert_int_equal(zmap_walk_run(&walk, data, 0), row->rc);
    assert_int_equal(walk.offset, row->offset);

    zmap_walk_free(&walk);
    free(data);
}


static void
frame_found(void **state)
{
    size_t          size;
    uint8_t        *data;
    zmap_walk_t     walk;
    frame_found_t  *row;

    row = *state;
    data = frame_unhex(row->hex, &size);

    assert_int_equal(frame_walk(&walk, data, size), ZMAP_OK);

    frame_same_findings(&walk.frames, &row->frames);
    assert_int_equal(walk.frames.index != NULL, row->frames.nindex != 0);

    zmap_walk_free(&walk);
    free(data);
}


static zmap_rc_e
frame_skip_whole(const uint8_t *data, size_t size, uint64_t end, uint64_t *pos)
{
    return zmap_frame_skip(data + *pos, size - (size_t) *pos, size, end, pos);
}


static void
frame_skip(void **state)
{
    size_t         size;
    uint8_t       *data;
    uint64_t       pos;
    frame_skip_t  *row;

    row = *state;
    data = frame_unhex(row->hex, &size);
    pos = row->pos;

    assert_int_equal(frame_skip_whole(data, size, row->end, &pos), row->rc);
    assert_int_equal(pos, row->after);

    /* where it stopped it stays */

    assert_int_equal(frame_skip_whole(data, size, row->end, &pos), row->rc);
    assert_int_equal(pos, row->after);

    free(data);
}


static void
frame_first(void **state)
{
    int             i;
    size_t          size;
    uint8_t        *data;
    zmap_walk_t     walk, whole, before;
    frame_first_t  *row;

    row = *state;
    data = frame_unhex(row->hex, &size);

    zmap_walk_init(&walk, size);

    for (i = 0; i < 3; i++) {
        assert_int_equal(zmap_walk_first(&walk, data), row->rc);

        assert_true(walk.offset == row->offset);
        assert_true(walk.frames.frames == row->frames);
        assert_true(walk.frames.skippable == row->skippable);
        assert_true(walk.frames.window == row->window);

        if (i != 0) {
            assert_memory_equal(&walk, &before, sizeof(walk));
        }

        memcpy(&before, &walk, sizeof(walk));
    }

    /* and the walk goes on as if it had not stopped there */

    zmap_walk_init(&whole, size);

    assert_int_equal(zmap_walk_run(&walk, data, 0),
                     zmap_walk_run(&whole, data, 0));
    assert_true(walk.offset == whole.offset);
    frame_same_findings(&walk.frames, &whole.frames);
    frame_same_index(&walk.frames, &whole.frames);

    /* nothing is left to do */

    assert_int_equal(zmap_walk_first(&walk, data), row->rc);
    assert_true(walk.offset == whole.offset);

    zmap_walk_free(&walk);
    zmap_walk_free(&whole);
    free(data);
}


static void
frame_header(void **state)
{
    size_t                size;
    uint8_t              *data;
    frame_header_t       *row;
    zmap_frame_header_t   header;

    row = *state;
    data = frame_unhex(row->hex, &size);
    memset(&header, 0, sizeof(header));

    assert_int_equal(zmap_frame_header(data, size, &header), row->rc);

    assert_true(header.window == row->header.window);
    assert_true(header.content_size == row->header.content_size);
    assert_true(header.dictionary_id == row->header.dictionary_id);
    assert_int_equal(header.block_max, row->header.block_max);
    assert_int_equal(header.size, row->header.size);
    assert_int_equal(header.sized, row->header.sized);
    assert_int_equal(header.checksum, row->header.checksum);

    free(data);
}


/* text-like bytes, so that blocks are compressed; other ones for each seed */

static uint8_t *
frame_content(size_t size, unsigned int seed)
{
    size_t    i;
    uint8_t  *content;

    content = malloc(size + 1);
    assert_non_null(content);

    for (i = 0; i < size; i++) {
        seed = seed * 1103515245 + 12345;
        content[i] = (uint8_t) ("etaoin shrdlu\n.,"[seed >> 28]);
    }

    return content;
}


static void
frame_append(frame_made_t *made, const void *data, size_t size)
{
    uint8_t  *grown;

    grown = malloc(made->size + size);
    assert_non_null(grown);

    if (made->size != 0) {
        memcpy(grown, made->data, made->size);
    }

    memcpy(grown + made->size, data, size);
    free(made->data);

    made->data = grown;
    made->size += size;
}


static void
frame_append_zstd(frame_made_t *made, const frame_zstd_t *zstd)
{
    size_t      size, bound;
    uint8_t    *content, *coded;
    ZSTD_CCtx  *cctx;

    content = frame_content(zstd->decoded, (unsigned int) made->frames);
    bound = ZSTD_compressBound(zstd->decoded);
    coded = malloc(bound);
    cctx = ZSTD_createCCtx();
    assert_non_null(coded);
    assert_non_null(cctx);

    ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, zstd->level);
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag, zstd->checksum);
    ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, zstd->declared);

    size = ZSTD_compress2(cctx, coded, bound, content, zstd->decoded);
    assert_false(ZSTD_isError(size));

    made->coded[made->frames] = made->size;
    made->decoded[made->frames + 1] = made->decoded[made->frames]
                                      + zstd->decoded;
    made->frames++;

    /* a frame without content has a raw block only */

    made->sized = made->sized && (zstd->declared || zstd->decoded == 0);
    made->checksum = made->checksum && zstd->checksum;

    frame_append(made, coded, size);

    ZSTD_freeCCtx(cctx);
    free(coded);
    free(content);
}


static void
frame_append_skippable(frame_made_t *made)
{
    static const uint8_t  skippable[] = {
        0x5e, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 0x28, 0xb5, 0x2f, 0xfd
    };

    frame_append(made, skippable, sizeof(skippable));
    made->skippable++;
}


static void
frame_make(frame_made_t *made, const frame_file_t *file)
{
    const char  *part;

    memset(made, 0, sizeof(*made));
    made->sized = 1;
    made->checksum = 1;

    for (part = file->parts; *part; part++) {
        if (*part == 's') {
            frame_append_skippable(made);

        } else {
            frame_append_zstd(made, &file->zstd[made->frames]);
        }
    }
}


/* every frame of the index decodes to the bytes that the index promises */

static void
frame_index_decodes(const frame_made_t *made, const zmap_frames_t *frames)
{
    size_t    i, size, coded;
    uint8_t  *decoded;

    assert_int_equal(frames->nindex, made->frames);

    for (i = 0; i < frames->nindex; i++) {
        assert_int_equal(frames->index[i].coded, made->coded[i]);
        assert_int_equal(frames->index[i].decoded, made->decoded[i]);

        size = made->decoded[i + 1] - made->decoded[i];
        decoded = malloc(size + 1);
        assert_non_null(decoded);

        coded = ZSTD_findFrameCompressedSize(made->data + made->coded[i],
                                             made->size - made->coded[i]);
        assert_false(ZSTD_isError(coded));

        assert_int_equal(ZSTD_decompress(decoded, size,
                                         made->data + made->coded[i], coded),
                         size);

        free(decoded);
    }
}


static void
frame_file(void **state)
{
    zmap_walk_t   walk;
    frame_made_t  made;

    frame_make(&made, *state);

    assert_int_equal(frame_walk(&walk, made.data, made.size), ZMAP_OK);
    assert_int_equal(walk.offset, made.size);
    assert_int_equal(walk.frames.frames, made.frames);
    assert_int_equal(walk.frames.skippable, made.skippable);
    assert_int_equal(walk.frames.checksum, made.checksum);
    assert_int_equal(walk.frames.sized, made.sized);
    assert_int_equal(walk.frames.dictionary_id, 0);

    if (made.sized) {
        assert_int_equal(walk.frames.content_size,
                         made.decoded[made.frames]);
        frame_index_decodes(&made, &walk.frames);

    } else {
        assert_null(walk.frames.index);
    }

    zmap_walk_free(&walk);
    free(made.data);
}


/*
 * A cut between two frames leaves a shorter whole file, or one without a zstd
 * frame; there are no other cuts that pass.
 */

static zmap_rc_e
frame_cut_verdict(const frame_made_t *made, size_t size)
{
    size_t  offset, frame, coded;

    frame = 0;

    for (offset = 0; offset < size; offset += coded) {
        coded = ZSTD_findFrameCompressedSize(made->data + offset,
                                             made->size - offset);
        assert_false(ZSTD_isError(coded));

        if (frame < made->frames && made->coded[frame] == offset) {
            frame++;
        }
    }

    if (offset != size) {
        return ZMAP_TRUNCATED;
    }

    return frame == 0 ? ZMAP_EMPTY : ZMAP_OK;
}


static void
frame_every_cut(void **state)
{
    size_t        size;
    uint8_t      *data;
    zmap_walk_t   walk;
    frame_made_t  made;

    static const frame_file_t  file = {
        NULL, "szszsz",
        { { 3, 1, 1, 700 }, { 3, 0, 0, 300 }, { 3, 1, 1, 0 } }
    };

    (void) state;

    frame_make(&made, &file);

    for (size = 0; size < made.size; size++) {
        data = unit_copy(made.data, size);

        assert_int_equal(frame_walk(&walk, data, size),
                         frame_cut_verdict(&made, size));

        zmap_walk_free(&walk);
        free(data);
    }

    free(made.data);
}


static void
frame_every_cut_of_a_large_frame(void **state)
{
    size_t        size;
    zmap_walk_t   walk;
    frame_made_t  made;

    static const frame_file_t  file = {
        NULL, "z", { { 1, 1, 1, 400000 } }
    };

    (void) state;

    frame_make(&made, &file);

    for (size = 1; size < made.size; size += 1 + size / 64) {
        zmap_walk_init(&walk, size);

        assert_int_equal(zmap_walk_run(&walk, made.data, 0), ZMAP_TRUNCATED);
        assert_true(walk.offset <= size);

        zmap_walk_free(&walk);
    }

    free(made.data);
}


static void
frame_steps_are_counted(void **state)
{
    size_t       size;
    uint8_t     *data;
    zmap_walk_t  walk;

    (void) state;

    /* two skippable frames, a header, two blocks */

    data = frame_unhex(SKIPPABLE MAGIC "20" "01" "000000" "090000" "41",
                       &size);

    zmap_walk_init(&walk, size);

    assert_int_equal(zmap_walk_run(&walk, data, 1), ZMAP_AGAIN);
    assert_int_equal(walk.offset, 8);
    assert_int_equal(zmap_walk_run(&walk, data, 2), ZMAP_AGAIN);
    assert_int_equal(walk.offset, 22);
    assert_int_equal(walk.frames.frames, 1);
    assert_int_equal(zmap_walk_run(&walk, data, 1), ZMAP_AGAIN);
    assert_int_equal(walk.offset, 25);
    assert_int_equal(zmap_walk_run(&walk, data, 1), ZMAP_OK);
    assert_int_equal(walk.offset, size);
    assert_int_equal(zmap_walk_run(&walk, data, 1), ZMAP_OK);

    zmap_walk_free(&walk);
    free(data);
}


/* the same file, of which only a part is in memory */

static void
frame_skip_meets_every_piece(void **state)
{
    size_t     len, size;
    uint8_t   *data, *copy;
    uint64_t   pos, at;

    (void) state;

    data = frame_unhex("502A4D18" "05000000" "0102030405"
                       "5F2A4D18" "00000000" MAGIC, &size);

    for (len = 0; len <= size; len++) {
        copy = unit_copy(data, len);
        at = len < 8 ? 0 : len < 21 ? 13 : 21;
        pos = 0;

        assert_int_equal(zmap_frame_skip(copy, len, size, size, &pos),
                         len == size ? ZMAP_OK : ZMAP_AGAIN);
        assert_int_equal(pos, at);

        pos = 0;
        assert_int_equal(zmap_frame_skip(copy, len, size, 13, &pos),
                         len < 8 ? ZMAP_AGAIN : ZMAP_OK);
        assert_int_equal(pos, len < 8 ? 0 : 13);

        /* what is no frame is so whatever follows; a cut needs the end */

        if (len >= 8) {
            copy[3] ^= 1;
            pos = 0;
            assert_int_equal(zmap_frame_skip(copy, len, size, size, &pos),
                             ZMAP_MAGIC);
            assert_int_equal(pos, 0);

            copy[3] ^= 1;
            assert_int_equal(zmap_frame_skip(copy, len < 12 ? len : 12, 12,
                                             12, &pos),
                             ZMAP_TRUNCATED);
            assert_int_equal(pos, 0);
        }

        free(copy);
    }

    free(data);
}


static void
frame_skip_meets_every_cut(void **state)
{
    size_t     cut, size, at;
    uint8_t   *data, *copy;
    uint64_t   pos;

    (void) state;

    /* skippable frames of 5 and of 0 bytes, a magic number */

    data = frame_unhex("502A4D18" "05000000" "0102030405"
                       "5F2A4D18" "00000000" MAGIC, &size);

    for (cut = 0; cut <= size; cut++) {
        copy = unit_copy(data, cut);
        at = cut < 13 ? 0 : cut < 21 ? 13 : 21;
        pos = 0;

        assert_int_equal(frame_skip_whole(copy, cut, cut, &pos),
                         cut == at || cut == size ? ZMAP_OK
                                                  : ZMAP_TRUNCATED);
        assert_int_equal(pos, at);

        free(copy);
    }

    free(data);
}


static void
frame_first_goes_on_after_memory_was_short(void **state)
{
    size_t       size;
    uint8_t     *data;
    zmap_walk_t  walk;

    (void) state;

    data = frame_unhex(SKIPPABLE MAGIC "00" "38" "010000", &size);

    zmap_walk_init(&walk, size);

    frame_memory_is_short = 1;
    assert_int_equal(zmap_walk_first(&walk, data), ZMAP_NOMEM);
    assert_int_equal(walk.frames.frames, 0);
    frame_memory_is_short = 0;

    assert_int_equal(zmap_walk_first(&walk, data), ZMAP_OK);
    assert_int_equal(walk.frames.frames, 1);
    assert_int_equal(walk.frames.skippable, 2);

    zmap_walk_free(&walk);
    free(data);
}


static void
frame_of_no_bytes_needs_no_memory(void **state)
{
    zmap_walk_t  walk;

    (void) state;

    zmap_walk_init(&walk, 0);

    assert_int_equal(zmap_walk_run(&walk, NULL, 0), ZMAP_EMPTY);
    assert_int_equal(walk.frames.frames, 0);
    assert_null(walk.frames.index);

    zmap_walk_free(&walk);
}


static void
frame_header_is_left_alone_by_an_error(void **state)
{
    size_t                i, size;
    uint8_t              *data;
    zmap_frame_header_t   header, before;

    static const char    *hex[] = {
        "00B52FFD" "20" "00", MAGIC "08" "00", MAGIC "C7" "38" "0102"
    };

    (void) state;

    memset(&header, 0x5a, sizeof(header));
    memcpy(&before, &header, sizeof(header));

    for (i = 0; i < UNIT_COUNT(hex); i++) {
        data = frame_unhex(hex[i], &size);

        assert_int_not_equal(zmap_frame_header(data, size, &header),
                             ZMAP_OK);
        assert_memory_equal(&header, &before, sizeof(header));

        free(data);
    }
}


static void
frame_error_is_repeated_over_mended_bytes(void **state)
{
    size_t       size;
    uint8_t     *data;
    zmap_walk_t  walk;

    (void) state;

    data = frame_unhex(MAGIC "20" "00" "070000", &size);

    zmap_walk_init(&walk, size);
    assert_int_equal(zmap_walk_run(&walk, data, 0), ZMAP_BLOCK);

    data[6] = 1;
    assert_int_equal(zmap_walk_run(&walk, data, 0), ZMAP_BLOCK);
    assert_int_equal(walk.offset, 6);

    zmap_walk_free(&walk);
    zmap_walk_init(&walk, size);
    assert_int_equal(zmap_walk_run(&walk, data, 0), ZMAP_OK);

    zmap_walk_free(&walk);
    free(data);
}


/* no file of a size that exists has such a sum: begin near the end */

static void
frame_sum_of_sizes_overflows(void **state)
{
    size_t       size;
    uint8_t     *data;
    zmap_walk_t  walk;

    (void) state;

    data = frame_unhex(MAGIC "20" "01" "090000" "41"
                       MAGIC "20" "01" "090000" "41", &size);

    zmap_walk_init(&walk, size);
    walk.frames.content_size = UINT64_MAX - 1;

    assert_int_equal(zmap_walk_run(&walk, data, 0), ZMAP_OVERFLOW);
    assert_int_equal(walk.offset, 10);
    assert_int_equal(zmap_walk_run(&walk, data, 0), ZMAP_OVERFLOW);

    zmap_walk_free(&walk);
    free(data);
}


static void
frame_walk_goes_on_after_memory_was_short(void **state)
{
    size_t        n;
    zmap_walk_t   walk;
    frame_made_t  made;

    (void) state;

    memset(&made, 0, sizeof(made));

    for (n = 0; n < 9; n++) {
        frame_append(&made, "\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00\x41", 10);
    }

    zmap_walk_init(&walk, made.size);

    frame_memory_is_short = 1;

    assert_int_equal(zmap_walk_run(&walk, made.data, 0), ZMAP_NOMEM);
    assert_int_equal(walk.offset, 0);
    assert_int_equal(walk.frames.frames, 0);

    frame_memory_is_short = 0;
    assert_int_equal(zmap_walk_run(&walk, made.data, 2), ZMAP_AGAIN);
    frame_memory_is_short = 1;

    assert_int_equal(zmap_walk_run(&walk, made.data, 0), ZMAP_NOMEM);
    assert_true(walk.offset < made.size);
    assert_int_equal(walk.offset, 10 * walk.frames.nindex);
    assert_int_equal(walk.offset, 10 * walk.frames.frames);

    frame_memory_is_short = 0;
    assert_int_equal(zmap_walk_run(&walk, made.data, 0), ZMAP_OK);

    assert_int_equal(walk.frames.nindex, 9);

    for (n = 0; n < 9; n++) {
        assert_int_equal(walk.frames.index[n].coded, 10 * n);
        assert_int_equal(walk.frames.index[n].decoded, n);
    }

    zmap_walk_free(&walk);
    free(made.data);
}


/* so many frames of one byte each, then a skippable frame */

static void
frame_many(zmap_walk_t *walk, size_t nframes)
{
    size_t    i, size;
    uint8_t  *data;

    size = 10 * nframes + 8;
    data = malloc(size);
    assert_non_null(data);

    for (i = 0; i < nframes; i++) {
        memcpy(data + 10 * i, "\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00\x41",
               10);
    }

    memcpy(data + 10 * i, "\x50\x2a\x4d\x18\x00\x00\x00\x00", 8);

    zmap_walk_init(walk, size);
    assert_int_equal(zmap_walk_run(walk, data, 0), ZMAP_OK);

    free(data);
}


static void
frame_index_reaches_its_limit(void **state)
{
    size_t       n;
    zmap_walk_t  walk;

    (void) state;

    n = ZMAP_FRAME_INDEX_MAX;
    frame_many(&walk, n);

    assert_int_equal(walk.frames.nindex, n);
    assert_int_equal(walk.frames.content_size, n);
    assert_int_equal(walk.frames.index[n - 1].coded, 10 * (n - 1));
    assert_int_equal(walk.frames.index[n - 1].decoded, n - 1);

    zmap_walk_free(&walk);
    assert_null(walk.frames.index);
}


static void
frame_index_above_its_limit_is_dropped(void **state)
{
    size_t       n;
    zmap_walk_t  walk;

    (void) state;

    n = ZMAP_FRAME_INDEX_MAX + 1;
    frame_many(&walk, n);

    assert_null(walk.frames.index);
    assert_int_equal(walk.frames.nindex, 0);
    assert_int_equal(walk.frames.frames, n);
    assert_int_equal(walk.frames.sized, 1);
    assert_int_equal(walk.frames.content_size, n);

    zmap_walk_free(&walk);
}


static const struct CMUnitTest  frame_others[] = {
    cmocka_unit_test(frame_every_cut),
    cmocka_unit_test(frame_every_cut_of_a_large_frame),
    cmocka_unit_test(frame_steps_are_counted),
    cmocka_unit_test(frame_skip_meets_every_cut),
        cmocka_unit_test(frame_skip_meets_every_piece),
    cmocka_unit_test(frame_first_goes_on_after_memory_was_short),
    cmocka_unit_test(frame_of_no_bytes_needs_no_memory),
    cmocka_unit_test(frame_header_is_left_alone_by_an_error),
    cmocka_unit_test(frame_error_is_repeated_over_mended_bytes),
    cmocka_unit_test(frame_sum_of_sizes_overflows),
    cmocka_unit_test(frame_walk_goes_on_after_memory_was_short),
    cmocka_unit_test(frame_index_reaches_its_limit),
    cmocka_unit_test(frame_index_above_its_limit_is_dropped)
};


int
main(void)
{
    size_t             n;
    struct CMUnitTest  tests[UNIT_COUNT(frame_verdicts)
                             + UNIT_COUNT(frame_founds)
                             + UNIT_COUNT(frame_headers)
                             + UNIT_COUNT(frame_skips)
                             + UNIT_COUNT(frame_firsts)
                             + UNIT_COUNT(frame_files)
                             + UNIT_COUNT(frame_others)];

    n = UNIT_ROWS(tests, frame_verdicts, frame_verdict);
    n += UNIT_ROWS(tests + n, frame_founds, frame_found);
    n += UNIT_ROWS(tests + n, frame_headers, frame_header);
    n += UNIT_ROWS(tests + n, frame_skips, frame_skip);
    n += UNIT_ROWS(tests + n, frame_firsts, frame_first);
    n += UNIT_ROWS(tests + n, frame_files, frame_file);

    memcpy(tests + n, frame_others, sizeof(frame_others));
    n += UNIT_COUNT(frame_others);

    return unit_run("frame", tests, n);
}
