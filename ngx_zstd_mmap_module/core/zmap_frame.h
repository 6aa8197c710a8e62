
/*
 * Walks the Zstandard frames of a file without decoding them.
 *
 * RFC 8878, section 3: a file is one or more concatenated frames, zstd or
 * skippable.  The walk touches every frame header and the three bytes of every
 * block header, so its verdict covers the whole file: magic numbers, reserved
 * bits, Block_Size against Block_Maximum_Size (libzstd's one-shot decoder
 * accepts larger raw and RLE blocks, its streaming decoder and browsers do
 * not), Frame_Content_Size against what the blocks can hold, no byte over.
 *
 * A seek table at the end of the file is compared with each frame that is
 * passed.  One that agrees with all of them tells the decoded sizes that frames
 * do not; one that does not is as if it were not there, and never makes a file
 * a bad one.
 *
 * The bytes may lie in a mapping: the walker neither allocates while it reads
 * nor keeps state outside zmap_walk_t, so that a caller may leave it by a jump
 * out of a SIGBUS handler and then still call zmap_walk_free().  It does not
 * know the guard.
 */


#ifndef ZMAP_FRAME_H
#define ZMAP_FRAME_H


#include "zmap_seektable.h"


ZMAP_BEGIN


#define ZMAP_FRAME_HEADER_MAX  18           /* with the magic number */
#define ZMAP_FRAME_SKIP_MIN    8            /* a skippable frame's header */
#define ZMAP_BLOCK_MAX         (128 * 1024) /* RFC 8878, 3.1.1.2.4 */

/* more frames than this are walked but not indexed: 16 MiB of entries */
#define ZMAP_FRAME_INDEX_MAX   (1024 * 1024)


typedef struct {
    uint64_t  window;          /* Window_Size, bytes */
    uint64_t  content_size;    /* Frame_Content_Size, meaningful if sized */
    uint32_t  dictionary_id;   /* 0: none named */
    uint32_t  block_max;       /* Block_Maximum_Size, bytes */
    uint8_t   size;            /* of the header with its magic number, bytes */
    uint8_t   sized;           /* Frame_Content_Size is present */
    uint8_t   checksum;        /* Content_Checksum follows the blocks */
} zmap_frame_header_t;


/* one zstd frame; it ends where the next entry, or the file, begins or ends */

typedef struct {
    uint64_t  coded;           /* offset of its magic number in the file */
    uint64_t  decoded;         /* offset of its first decoded byte */
} zmap_frame_entry_t;


typedef struct {
    uint64_t             frames;         /* zstd frames seen */
    uint64_t             skippable;      /* skippable frames seen */
    uint64_t             content_size;   /* of all frames; valid if sized or
                                            tabled */
    uint64_t             largest;        /* decoded bytes of one frame; valid
                                            as content_size is */
    uint64_t             window;         /* largest Window_Size */
    uint32_t             dictionary_id;  /* first that is not 0 */
    uint8_t              sized;          /* the size of every frame is known:
                                            declared, or the frame has raw and
                                            RLE blocks only */
    uint8_t              tabled;         /* the seek table agrees with all
                                            frames, and with what else is known
                                            of their decoded sizes */
    uint8_t              table_lies;     /* there is a seek table, and it does
                                            not agree */
    uint8_t              checksum;       /* every frame has a checksum */
    zmap_frame_entry_t  *index;          /* owned by the walk; NULL unless
                                            sized or tabled, and few enough
                                            frames */
    size_t               nindex;
} zmap_frames_t;


typedef enum {
    ZMAP_TABLE_UNKNOWN = 0,              /* not looked for */
    ZMAP_TABLE_NONE,                     /* or not followed */
    ZMAP_TABLE_AGREES,                   /* with the frames so far */
    ZMAP_TABLE_LIES                      /* if it is one */
} zmap_table_e;


typedef struct {
    uint64_t             size;           /* of the file, bytes */
    uint64_t             offset;         /* next byte to look at; after an
                                            error: of what is wrong */
    zmap_frames_t        frames;         /* what was found so far; complete
                                            once the walk returned ZMAP_OK */

    /* private: the frame that is being walked */
    zmap_frame_header_t  _header;
    uint64_t             _coded;         /* offset of its magic number */
    uint64_t             _known;         /* decoded bytes of raw, RLE blocks */
    uint64_t             _compressed;    /* number of compressed blocks */
    size_t               _capacity;      /* of the index, entries */
    zmap_seektable_t     _table;
    uint64_t             _entry;         /* number of the next one in it */
    zmap_table_e         _tabled;
    zmap_rc_e            _failed;        /* the error that ended the walk */
    uint8_t              _inside;
    uint8_t              _unindexed;
} zmap_walk_t;


/*
 * Parses the frame header at data[0..len), which begins with the magic number
 * of a zstd frame.  ZMAP_OK, or ZMAP_MAGIC, ZMAP_TRUNCATED, ZMAP_HEADER.
 * Window_Size is any value that the format allows, up to 2^41 + 7 * 2^38.
 */
zmap_rc_e zmap_frame_header(const uint8_t *data, size_t len,
    zmap_frame_header_t *header);

/*
 * Moves *pos over the skippable frames of a file of size bytes that begin
 * before end: to a zstd frame, to size, or to whatever begins at or behind end.
 * data[0..len) are the bytes of the file from *pos on, not beyond size, and
 * need not be all of them: the content of skippable frames is jumped over.
 *
 * ZMAP_OK; ZMAP_AGAIN: fewer than ZMAP_FRAME_SKIP_MIN bytes from *pos on are in
 * data, and not the rest of the file, or *pos lies behind data; ZMAP_MAGIC,
 * ZMAP_TRUNCATED, with *pos at what is wrong.
 */
zmap_rc_e zmap_frame_skip(const uint8_t *data, size_t len, uint64_t size,
    uint64_t end, uint64_t *pos);

/* prepares the walk of a file of size bytes; allocates nothing */
void zmap_walk_init(zmap_walk_t *walk, uint64_t size);

/*
 * Goes on with the walk over data[0..walk->size), for at most max_blocks
 * blocks, frame headers or skippable frames (0: no limit).
 *
 * ZMAP_OK: the whole file is well formed and holds at least one zstd frame.
 * ZMAP_AGAIN: max_blocks reached.  Else what is wrong, at walk->offset:
 * ZMAP_EMPTY, ZMAP_MAGIC, ZMAP_TRUNCATED, ZMAP_HEADER, ZMAP_BLOCK,
 * ZMAP_CONTENT_SIZE; ZMAP_NOMEM, when the index cannot grow (the walk may
 * then be called again); ZMAP_OVERFLOW, when the content sizes do not sum up
 * in 64 bits.  A walk that has ended says the same again.
 *
 * walk->offset is then the begin of the frame or block that is cut short or
 * invalid, of the frame whose sizes do not hold, or the end of the file.
 */
zmap_rc_e zmap_walk_run(zmap_walk_t *walk, const uint8_t *data,
    uint64_t max_blocks);

/*
 * Goes on until the header of a zstd frame has been read, and does nothing once
 * one was: walk->frames then tells of that frame.  ZMAP_OK, or as
 * zmap_walk_run().
 */
zmap_rc_e zmap_walk_first(zmap_walk_t *walk, const uint8_t *data);

/*
 * After a walk of a file that is tabled and not sized: a frame was found to
 * decode to another size than its seek table says.  The file is then one whose
 * table lies.  Index and content_size stay, for those who decode by them.
 */
void zmap_walk_distrust(zmap_walk_t *walk);

/* frees the index; the walk may be initialised again */
void zmap_walk_free(zmap_walk_t *walk);


ZMAP_END


#endif /* ZMAP_FRAME_H */
