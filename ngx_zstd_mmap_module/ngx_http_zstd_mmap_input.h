
/*
 * Where the coded bytes of a file come from: the staging zone, its mapping, or
 * reads into a window.
 */


#ifndef NGX_HTTP_ZSTD_MMAP_INPUT_H
#define NGX_HTTP_ZSTD_MMAP_INPUT_H


#include "ngx_http_zstd_mmap_stage.h"
#include "ngx_http_zstd_mmap_worker.h"


/* what zstd_mmap_input read asks for at a time, and the window of a job */
#define NGX_HTTP_ZSTD_MMAP_READ  (64 * 1024)


typedef enum {
    NGX_HTTP_ZSTD_MMAP_SOURCE_MAP = 0,
    NGX_HTTP_ZSTD_MMAP_SOURCE_STAGED,  /* the pinned segment */
    NGX_HTTP_ZSTD_MMAP_SOURCE_READ     /* a window */
} ngx_http_zstd_mmap_source_e;


/*
 * A file that is decoded, and how.  It knows no request: its holder, a request
 * or a job, keeps the version, the descriptor and the configuration for it.
 * One thread at a time uses it.
 */

typedef struct {
    zmap_file_t                    *file;
    ngx_fd_t                        fd;
    ngx_http_zstd_mmap_loc_conf_t  *conf;
    ngx_http_zstd_mmap_worker_t    *worker;
    ngx_log_t                      *log;

    ngx_http_zstd_mmap_segment_t    segment;   /* a pin; its data is NULL: not
                                                  staged */
    zmap_decoder_t                 *decoder;   /* of the worker's decoders */
    zmap_window_t                  *window;    /* NULL: the worker's */
    uint64_t                        dropped;   /* coded bytes that were taken
                                                  out of the mapping again */
    unsigned                        whole:1;   /* decoded in one go */
    unsigned                        tabled:1;  /* its size is what a seek table
                                                  says: decoding follows that */
    unsigned                        asked:1;   /* for the staged copy */
    unsigned                        young:1;   /* the version may be two: it was
                                                  racy when the request began */
} ngx_http_zstd_mmap_input_t;


/*
 * On the thread of the event loop:
 */

/*
 * Pins the staged copy of the file in input->segment, and stages the file when
 * it was asked for often enough; does nothing where the location does not
 * stage the file, and at further calls.  Not staged is no error.
 *
 * Call it when the bytes are needed and the verdict is good.
 */
void ngx_http_zstd_mmap_take_segment(ngx_http_request_t *r,
    ngx_http_zstd_mmap_input_t *input);

/*
 * Maps the file unless that was done, with the location's zstd_mmap_advise.
 * As zmap_map_open().
 */
zmap_rc_e ngx_http_zstd_mmap_map(ngx_http_zstd_mmap_input_t *input);

/* takes a decoder unless there is one; ZMAP_OK or ZMAP_NOMEM */
zmap_rc_e ngx_http_zstd_mmap_take_decoder(ngx_http_zstd_mmap_input_t *input);

/* gives the decoder back, if there is one */
void ngx_http_zstd_mmap_put_decoder(ngx_http_zstd_mmap_input_t *input);

/*
 * A reply ends where its decoder is: what it left mapped stays, for the next
 * one, until so much is left of all of them that the whole file is taken out of
 * the memory of the process.
 */
void ngx_http_zstd_mmap_leave_pages(ngx_http_zstd_mmap_input_t *input);

/* gives decoder and segment back */
void ngx_http_zstd_mmap_close_input(ngx_http_zstd_mmap_input_t *input);


/*
 * On any thread, where the input is not the event loop's and has a window of
 * its own:
 */

/* what decoding reads: the segment if there is one, else zstd_mmap_input */
ngx_http_zstd_mmap_source_e ngx_http_zstd_mmap_get_source(
    ngx_http_zstd_mmap_input_t *input);

/*
 * A piece of that source which the next decode step can begin with, offset
 * being the next byte to decode.  A piece of a mapping is all of it, and is
 * read under the guard only; on other threads it was mapped before.  ZMAP_OK,
 * or as zmap_window_fill() and zmap_map_open(), or ZMAP_NOMEM, logged.
 */
zmap_rc_e ngx_http_zstd_mmap_get_piece(ngx_http_zstd_mmap_input_t *input,
    uint64_t offset, zmap_piece_t *piece);

/*
 * ZMAP_OK when the descriptor still has the bytes of the version; ZMAP_CHANGED
 * or ZMAP_SYSERR.
 */
zmap_rc_e ngx_http_zstd_mmap_check_file(ngx_http_zstd_mmap_input_t *input);

/* counts what the kernel mapped by huge pages where the location asks for it */
void ngx_http_zstd_mmap_count_huge(ngx_http_zstd_mmap_input_t *input);

/*
 * The version's bytes before offset are not needed soon: keeps what a worker
 * has mapped of large files small.
 */
void ngx_http_zstd_mmap_drop_pages(ngx_http_zstd_mmap_input_t *input,
    uint64_t offset);


#endif /* NGX_HTTP_ZSTD_MMAP_INPUT_H */
