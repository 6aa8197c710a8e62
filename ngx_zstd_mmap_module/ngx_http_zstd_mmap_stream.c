
/*
 * Replies in pieces.
 *
 * The client's pace is that of the source: a piece is made when a buffer is
 * free, and a buffer is free when the filters have consumed it.  One turn of
 * the event loop does a bounded amount of work; then the connection's write
 * event is posted for the next turn, since an edge-triggered socket that took
 * everything raises no event.  While the request rests a timer runs, so that
 * a worker that shuts down waits for it.
 */


#include "ngx_http_zstd_mmap_stream.h"
#include "ngx_http_zstd_mmap_error.h"
#include "ngx_http_zstd_mmap_wait.h"

#include "core/zmap_read.h"


/* bytes of one turn; one piece at least */
#define NGX_HTTP_ZSTD_MMAP_TURN  (1024 * 1024)


struct ngx_http_zstd_mmap_stream_s {
    ngx_http_zstd_mmap_ctx_t    *ctx;
    ngx_http_zstd_mmap_fill_pt   fill;

    ngx_chain_t                 *free;
    ngx_chain_t                 *busy;
    ngx_chain_t                 *pending;   /* the piece that is being made */
    size_t                       room;      /* bytes of a piece */

    unsigned                     started:1; /* some of the body was made */
    unsigned                     last:1;    /* the end went to the filters */
    unsigned                     failed:1;  /* the filters did not take it */
    unsigned                     resumed:1; /* the handler has run */
};


static void ngx_http_zstd_mmap_cleanup_stream(void *data);
static u_char *ngx_http_zstd_mmap_alloc_pieces(ngx_http_zstd_mmap_ctx_t *ctx,
    size_t size);
static ngx_int_t ngx_http_zstd_mmap_pass_hole(
    ngx_http_zstd_mmap_stream_t *stream, off_t hole);
static void ngx_http_zstd_mmap_stream_handler(ngx_http_request_t *r);
static void ngx_http_zstd_mmap_run_stream(ngx_http_zstd_mmap_stream_t *stream);
static void ngx_http_zstd_mmap_end_stream(ngx_http_zstd_mmap_stream_t *stream,
    ngx_int_t rc);
static ngx_int_t ngx_http_zstd_mmap_pass_piece(
    ngx_http_zstd_mmap_stream_t *stream, size_t *work);
static ngx_chain_t *ngx_http_zstd_mmap_take_piece(
    ngx_http_zstd_mmap_stream_t *stream);
static zmap_rc_e ngx_http_zstd_mmap_make_piece(
    ngx_http_zstd_mmap_stream_t *stream, ngx_buf_t *b, size_t *work);
static ngx_uint_t ngx_http_zstd_mmap_is_replaced(
    ngx_http_zstd_mmap_stream_t *stream);
static void ngx_http_zstd_mmap_give_way(ngx_http_zstd_mmap_stream_t *stream);
static ngx_uint_t ngx_http_zstd_mmap_is_sent(
    ngx_http_zstd_mmap_stream_t *stream);
static ngx_uint_t ngx_http_zstd_mmap_is_blocked(
    ngx_http_zstd_mmap_stream_t *stream);
static ngx_uint_t ngx_http_zstd_mmap_is_postponed(ngx_http_request_t *r);
static void ngx_http_zstd_mmap_wait_stream(
    ngx_http_zstd_mmap_stream_t *stream, ngx_uint_t post);


ngx_http_zstd_mmap_stream_t *
ngx_http_zstd_mmap_create_stream(ngx_http_zstd_mmap_ctx_t *ctx,
    ngx_http_zstd_mmap_fill_pt fill, size_t room, ngx_uint_t pieces)
{
    u_char                       *p;
    ngx_buf_t                    *b;
    ngx_uint_t                    i;
    ngx_chain_t                  *cl;
    ngx_pool_cleanup_t           *cln;
    ngx_http_request_t           *r;
    ngx_http_zstd_mmap_stream_t  *stream;

    r = ctx->request;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_zstd_mmap_stream_t));
    if (cln == NULL) {
        return NULL;
    }

    stream = cln->data;
    ngx_memzero(stream, sizeof(ngx_http_zstd_mmap_stream_t));

    stream->ctx = ctx;
    cln->handler = ngx_http_zstd_mmap_cleanup_stream;

    stream->fill = fill;
    stream->room = room;

    p = NULL;

    if (room) {
        p = ngx_http_zstd_mmap_alloc_pieces(ctx, room * pieces);
        if (p == NULL) {
            return NULL;
        }
    }

    for (i = 0; i < pieces; i++) {

        b = ngx_calloc_buf(r->pool);
        if (b == NULL) {
            return NULL;
        }

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NULL;
        }

        b->start = p ? p + i * room : NULL;

        cl->buf = b;
        cl->next = stream->free;
        stream->free = cl;
    }

    return stream;
}


ngx_int_t
ngx_http_zstd_mmap_start_stream(ngx_http_zstd_mmap_stream_t *stream,
    off_t hole)
{
    ngx_http_request_t  *r;

    r = stream->ctx->request;

    if (r == r->main) {
        ngx_http_zstd_mmap_arm_reset(stream->ctx);
    }

    ngx_http_set_ctx(r, stream, ngx_http_zstd_mmap_module);

    if (hole && ngx_http_zstd_mmap_pass_hole(stream, hole) == NGX_ERROR) {
        return NGX_ERROR;
    }

    r->write_event_handler = ngx_http_zstd_mmap_stream_handler;

    if (r == r->main && !r->discard_body) {
        r->read_event_handler = ngx_http_test_reading;
    }

    r->main->count++;

    ngx_http_zstd_mmap_run_stream(stream);

    if (r == r->main && r->discard_body) {
        /* the handler has to see what returning does */
        ngx_post_event(r->connection->write, &ngx_posted_next_events);
    }

    return NGX_DONE;
}


/* the range filter drops it unread, and counts it */

static ngx_int_t
ngx_http_zstd_mmap_pass_hole(ngx_http_zstd_mmap_stream_t *stream, off_t hole)
{
    ngx_chain_t  out;

    out.buf = stream->free->buf;
    out.next = NULL;

    out.buf->in_file = 1;
    out.buf->file_last = hole;

    return ngx_http_output_filter(stream->ctx->request, &out);
}


/* a timeout, an error and the end of the worker leave the connection armed */

static void
ngx_http_zstd_mmap_cleanup_stream(void *data)
{
    ngx_http_zstd_mmap_stream_t *stream = data;

    ngx_connection_t  *c;

    c = stream->ctx->request->connection;

    if (ngx_http_zstd_mmap_is_sent(stream) && !c->error && !c->timedout) {
        ngx_http_zstd_mmap_disarm_reset(stream->ctx);
    }
}


static u_char *
ngx_http_zstd_mmap_alloc_pieces(ngx_http_zstd_mmap_ctx_t *ctx, size_t size)
{
    ngx_pool_t  *pool;

    if (ngx_http_zstd_mmap_has_buffers(ctx->worker, size)) {
        ctx->pieces = zmap_bodies_alloc(ctx->worker->bodies, size);
        if (ctx->pieces) {
            ctx->worker->streaming += ctx->pieces->size;

            if (ctx->steps) {
                ctx->steps->body = zmap_bodies_hold(ctx->worker->bodies,
                                                    ctx->pieces);
            }

            return ctx->pieces->data;
        }
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "zstd mmap: no buffers left for pieces, malloc %uz", size);

    pool = ctx->steps ? ctx->steps->pool : ctx->request->pool;

    /* a descriptor with O_DIRECT is read into whole blocks */

    return ngx_pmemalign(pool, size, ZMAP_READ_BLOCK);
}


void
ngx_http_zstd_mmap_continue_stream(ngx_http_zstd_mmap_ctx_t *ctx)
{
    ngx_connection_t             *c;
    ngx_http_request_t           *r;
    ngx_http_zstd_mmap_stream_t  *stream;

    r = ctx->request;
    c = r->connection;

    stream = ngx_http_get_module_ctx(r, ngx_http_zstd_mmap_module);

    /* the request may be ending, or have another body by now */

    if (stream == NULL || stream->ctx != ctx || stream->failed
        || r->write_event_handler != ngx_http_zstd_mmap_stream_handler)
    {
        return;
    }

    ngx_http_set_log_request(c->log, r);

    ngx_http_zstd_mmap_stream_handler(r);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_zstd_mmap_stream_handler(ngx_http_request_t *r)
{
    ngx_event_t                  *wev;
    ngx_connection_t             *c;
    ngx_http_zstd_mmap_stream_t  *stream;

    c = r->connection;
    wev = c->write;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "zstd mmap stream handler: \"%V?%V\"", &r->uri, &r->args);

    stream = ngx_http_get_module_ctx(r, ngx_http_zstd_mmap_module);

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, c->log, NGX_ETIMEDOUT,
                      "client timed out");
        c->timedout = 1;

        ngx_http_zstd_mmap_end_stream(stream, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (!stream->resumed) {
        stream->resumed = 1;
        ngx_http_zstd_mmap_keep_reading(r);
    }

    if (wev->delayed || r->aio) {
        ngx_http_zstd_mmap_wait_stream(stream, 0);
        return;
    }

    ngx_http_zstd_mmap_run_stream(stream);
}


static void
ngx_http_zstd_mmap_run_stream(ngx_http_zstd_mmap_stream_t *stream)
{
    size_t               work, passed;
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = stream->ctx->request;
    passed = 0;

    do {
        rc = ngx_http_zstd_mmap_pass_piece(stream, &work);

        if (ngx_http_zstd_mmap_is_replaced(stream)) {
            ngx_http_zstd_mmap_give_way(stream);
            stream->failed = 1;
        }

        if (rc == NGX_ERROR || rc > NGX_OK || stream->failed || stream->last) {
            ngx_http_zstd_mmap_end_stream(stream, rc);
            return;
        }

        if (ngx_http_zstd_mmap_is_blocked(stream)) {
            ngx_http_zstd_mmap_wait_stream(stream,
                                           ngx_http_zstd_mmap_is_postponed(r));
            return;
        }

        passed += work;

    } while (passed < NGX_HTTP_ZSTD_MMAP_TURN);

    ngx_http_zstd_mmap_wait_stream(stream, 1);
}


static void
ngx_http_zstd_mmap_end_stream(ngx_http_zstd_mmap_stream_t *stream,
    ngx_int_t rc)
{
    stream->failed |= (rc == NGX_ERROR || rc > NGX_OK);

    ngx_http_finalize_request(stream->ctx->request, rc);
}


static ngx_int_t
ngx_http_zstd_mmap_pass_piece(ngx_http_zstd_mmap_stream_t *stream,
    size_t *work)
{
    ngx_int_t            rc;
    zmap_rc_e            zrc;
    ngx_chain_t         *out;
    ngx_http_request_t  *r;

    r = stream->ctx->request;
    out = ngx_http_zstd_mmap_take_piece(stream);
    *work = 0;

    if (out) {
        zrc = ngx_http_zstd_mmap_make_piece(stream, out->buf, work);

        if (zrc != ZMAP_OK && zrc != ZMAP_AGAIN) {
            return ngx_http_zstd_mmap_abort(stream->ctx, zrc);
        }

        if (stream->ctx->pending) {
            stream->pending = out;
            return NGX_OK;
        }

        if (zrc == ZMAP_AGAIN && ngx_buf_size(out->buf) == 0) {
            /* much was read and nothing came of it, as yet */
            out->next = stream->free;
            stream->free = out;
            return NGX_OK;
        }

        if (stream->last && r != r->main && !stream->started) {
            /* an empty part of a page is one without any buffer */
            return NGX_OK;
        }

    } else if (ngx_http_zstd_mmap_is_postponed(r)
               && !r->connection->buffered
               && ngx_http_write_filter(r->main, NULL) == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_output_filter(r, out);

    ngx_chain_update_chains(r->pool, &stream->free, &stream->busy, &out,
                            (ngx_buf_tag_t) &ngx_http_zstd_mmap_module);

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "zstd mmap: pass rc:%i free:%p last:%d",
                   rc, stream->free, stream->last);

    return rc;
}


/* one that was pending and is made, or a free one; NULL: none now */

static ngx_chain_t *
ngx_http_zstd_mmap_take_piece(ngx_http_zstd_mmap_stream_t *stream)
{
    ngx_chain_t  *cl;

    if (stream->ctx->pending) {
        return NULL;
    }

    cl = stream->pending;

    if (cl) {
        stream->pending = NULL;
        return cl;
    }

    cl = stream->free;

    if (cl) {
        stream->free = cl->next;
        cl->next = NULL;
    }

    return cl;
}


static zmap_rc_e
ngx_http_zstd_mmap_make_piece(ngx_http_zstd_mmap_stream_t *stream,
    ngx_buf_t *b, size_t *work)
{
    u_char     *start;
    zmap_rc_e   rc;

    start = b->start;

    /* filters leave flags behind, and one of them would end the reply */
    ngx_memzero(b, sizeof(ngx_buf_t));

    b->tag = (ngx_buf_tag_t) &ngx_http_zstd_mmap_module;
    b->start = start;
    b->pos = start;
    b->last = start;
    b->end = start + stream->room;

    rc = stream->fill(stream->ctx, b, work);

    if (stream->ctx->pending) {
        return rc;
    }

    if (rc == ZMAP_AGAIN || rc == ZMAP_OK) {
        stream->started |= ngx_buf_size(b) ? 1 : 0;
    }

    if (rc != ZMAP_OK) {
        return rc;
    }

    stream->last = 1;

    b->last_buf = (stream->ctx->request == stream->ctx->request->main) ? 1 : 0;
    b->last_in_chain = 1;
    b->sync = (b->last_buf || ngx_buf_size(b)) ? 0 : 1;

    return rc;
}


/*
 * A body filter may have answered with an error page in place of the reply
 * (ngx_http_filter_finalize_request()): the contexts of modules are then
 * cleared, and the page may not be sent as yet.
 */

static ngx_uint_t
ngx_http_zstd_mmap_is_replaced(ngx_http_zstd_mmap_stream_t *stream)
{
    return ngx_http_get_module_ctx(stream->ctx->request,
                                   ngx_http_zstd_mmap_module)
           != (void *) stream;
}


/* what is sent now is not ours to vouch for; a stream does that by itself */

static void
ngx_http_zstd_mmap_give_way(ngx_http_zstd_mmap_stream_t *stream)
{
    ngx_http_zstd_mmap_stream_t  *page;

    page = ngx_http_get_module_ctx(stream->ctx->request,
                                   ngx_http_zstd_mmap_module);

    if (page == NULL || ngx_http_zstd_mmap_is_sent(page)) {
        ngx_http_zstd_mmap_disarm_reset(stream->ctx);
    }
}


static ngx_uint_t
ngx_http_zstd_mmap_is_sent(ngx_http_zstd_mmap_stream_t *stream)
{
    ngx_http_request_t  *r;

    r = stream->ctx->request;

    return stream->last && !stream->failed
           && !r->connection->buffered && r->out == NULL;
}


/*
 * NGX_AGAIN does not tell: the TLS layer returns it for the beginning of a
 * record that it keeps while the socket has room.
 */

static ngx_uint_t
ngx_http_zstd_mmap_is_blocked(ngx_http_zstd_mmap_stream_t *stream)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = stream->ctx->request;
    c = r->connection;

    if (stream->ctx->pending || stream->free == NULL || r->aio) {
        return 1;
    }

    return r == c->data && (!c->write->ready || c->write->delayed);
}


/*
 * Less than postpone_output bytes wait for more of the body, also where there
 * is no piece left to bring it.  Nothing that goes through the filters ends
 * this: SSI takes a flush away.
 */

static ngx_uint_t
ngx_http_zstd_mmap_is_postponed(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    return r == c->data && !r->aio && !r->main->blocked
           && r->main->out != NULL
           && c->write->ready && !c->write->delayed;
}


/* post: the socket has room, so no event will come by itself */

static void
ngx_http_zstd_mmap_wait_stream(ngx_http_zstd_mmap_stream_t *stream,
    ngx_uint_t post)
{
    ngx_msec_t                 timeout;
    ngx_event_t               *wev;
    ngx_connection_t          *c;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = stream->ctx->request;
    c = r->connection;
    wev = c->write;

    if (r != c->data) {

        /*
         * The postpone filter posts the request when its turn has come; a
         * body that is collected in memory has its turn now.
         */

        if (post && ngx_http_post_request(r, NULL) != NGX_OK) {
            ngx_http_zstd_mmap_end_stream(stream, NGX_ERROR);
        }

        return;
    }

    clcf = ngx_http_get_module_loc_conf(r->main, ngx_http_core_module);

    timeout = clcf->send_timeout;

    if (stream->ctx->pending) {
        /* it is not the client that is slow */
        timeout = ngx_max(timeout, NGX_HTTP_ZSTD_MMAP_WAIT);
    }

    if (!wev->delayed) {
        ngx_add_timer(wev, timeout);
    }

    if (post) {
        ngx_post_event(wev, &ngx_posted_next_events);
        return;
    }

    if (ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK) {
        ngx_http_zstd_mmap_end_stream(stream, NGX_ERROR);
    }
}
