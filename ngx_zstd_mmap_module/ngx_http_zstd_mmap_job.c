
/*
 * Runs work in nginx's thread pool or by slices of the event loop.
 */


#include "ngx_http_zstd_mmap_job.h"


static ngx_http_zstd_mmap_job_t *ngx_http_zstd_mmap_alloc_job(
    ngx_http_zstd_mmap_input_t *input, uint64_t size);
static ngx_int_t ngx_http_zstd_mmap_open_job(ngx_http_zstd_mmap_job_t *job,
    ngx_http_zstd_mmap_input_t *input);
static ngx_int_t ngx_http_zstd_mmap_map_job(ngx_http_zstd_mmap_job_t *job);
static ngx_int_t ngx_http_zstd_mmap_alloc_window(
    ngx_http_zstd_mmap_job_t *job);
#if (NGX_THREADS)
static ngx_int_t ngx_http_zstd_mmap_post_task(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_run_task(void *data, ngx_log_t *log);
static void ngx_http_zstd_mmap_end_task(ngx_event_t *ev);
#endif
static ngx_uint_t ngx_http_zstd_mmap_is_given_up(
    ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_run_slice(ngx_event_t *ev);
static void ngx_http_zstd_mmap_next_slice(ngx_http_zstd_mmap_job_t *job);
static void ngx_http_zstd_mmap_end_job(ngx_http_zstd_mmap_job_t *job);


static ngx_queue_t  ngx_http_zstd_mmap_jobs;


ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_create_job(ngx_http_zstd_mmap_input_t *input,
    uint64_t size, ngx_http_zstd_mmap_run_pt run,
    ngx_http_zstd_mmap_end_pt end)
{
    ngx_http_zstd_mmap_job_t  *job;

    job = ngx_http_zstd_mmap_alloc_job(input, size);

    if (job == NULL) {
        ngx_log_error(NGX_LOG_CRIT, input->log, 0,
                      "no memory for a zstd_mmap job");
        return NULL;
    }

    job->run = run;
    job->end = end;

    if (ngx_http_zstd_mmap_open_job(job, input) != NGX_OK) {
        ngx_http_zstd_mmap_destroy_job(job);
        return NULL;
    }

    return job;
}


static ngx_http_zstd_mmap_job_t *
ngx_http_zstd_mmap_alloc_job(ngx_http_zstd_mmap_input_t *input,
    uint64_t size)
{
    ngx_pool_t                *pool;
    ngx_http_zstd_mmap_job_t  *job;

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE / 8, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    job = ngx_pcalloc(pool, sizeof(ngx_http_zstd_mmap_job_t));
    if (job == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    job->pool = pool;
    job->conf = *input->conf;

#if (NGX_THREADS)

    if (ngx_http_zstd_mmap_has_threads(&job->conf, size)) {

        job->task = ngx_thread_task_alloc(pool, 0);
        if (job->task == NULL) {
            ngx_destroy_pool(pool);
            return NULL;
        }
    }

#endif

    job->input.fd = NGX_INVALID_FILE;
    job->input.conf = &job->conf;
    job->input.worker = input->worker;
    job->input.log = ngx_cycle->log;
    job->input.file = zmap_file_ref(input->file);
    job->input.tabled = input->tabled;
    job->input.young = input->young;

    job->event.handler = ngx_http_zstd_mmap_run_slice;
    job->event.data = job;
    job->event.log = ngx_cycle->log;

    if (ngx_http_zstd_mmap_jobs.next == NULL) {
        ngx_queue_init(&ngx_http_zstd_mmap_jobs);
    }

    ngx_queue_insert_tail(&ngx_http_zstd_mmap_jobs, &job->queue);

    return job;
}


/*
 * In single-process mode a reload frees the zones of the cycle before, and no
 * request of that cycle keeps them for a job.
 */

static ngx_int_t
ngx_http_zstd_mmap_open_job(ngx_http_zstd_mmap_job_t *job,
    ngx_http_zstd_mmap_input_t *input)
{
    job->input.fd = dup(input->fd);

    if (job->input.fd == NGX_INVALID_FILE) {
        ngx_log_error(NGX_LOG_CRIT, input->log, ngx_errno,
                      "dup() of a file to be decoded failed");
        return NGX_ERROR;
    }

    if (ngx_process == NGX_PROCESS_SINGLE) {
        job->conf.stage = NULL;

    } else if (input->segment.data) {
        ngx_http_zstd_mmap_hold_segment(&job->input.segment,
                                        &input->segment);
        return NGX_OK;
    }

    if (job->conf.input == NGX_HTTP_ZSTD_MMAP_INPUT_MAP) {
        return ngx_http_zstd_mmap_map_job(job);
    }

    return ngx_http_zstd_mmap_alloc_window(job);
}


/* a file that others have walked is not mapped; a thread must not do it */

static ngx_int_t
ngx_http_zstd_mmap_map_job(ngx_http_zstd_mmap_job_t *job)
{
    if (ngx_http_zstd_mmap_map(&job->input) != ZMAP_OK) {
        ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                      "mmap() of a file to be decoded failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* the worker's own window is the event loop's */

static ngx_int_t
ngx_http_zstd_mmap_alloc_window(ngx_http_zstd_mmap_job_t *job)
{
    u_char  *data;

    data = ngx_pmemalign(job->pool, NGX_HTTP_ZSTD_MMAP_READ, ZMAP_READ_BLOCK);
    job->input.window = ngx_palloc(job->pool, sizeof(zmap_window_t));

    if (data == NULL || job->input.window == NULL) {
        return NGX_ERROR;
    }

    zmap_window_init(job->input.window, data, NGX_HTTP_ZSTD_MMAP_READ);

    return NGX_OK;
}


ngx_uint_t
ngx_http_zstd_mmap_has_threads(ngx_http_zstd_mmap_loc_conf_t *conf,
    uint64_t size)
{
    return conf->threads != NULL && size >= (uint64_t) conf->threads_min;
}


void
ngx_http_zstd_mmap_start_job(ngx_http_zstd_mmap_job_t *job,
    ngx_http_zstd_mmap_end_pt ended)
{
    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "zstd mmap: start job %p, thread:%d",
                   job, job->task != NULL);

    job->rc = ZMAP_AGAIN;
    job->err = 0;
    job->ended = ended;

#if (NGX_THREADS)

    job->threaded = job->task ? 1 : 0;

    if (job->threaded && ngx_http_zstd_mmap_post_task(job) == NGX_OK) {
        return;
    }

    job->threaded = 0;

#endif

    ngx_http_zstd_mmap_next_slice(job);
}


zmap_rc_e
ngx_http_zstd_mmap_finish_job(ngx_http_zstd_mmap_job_t *job)
{
    do {
        job->rc = job->run(job);
        job->err = ngx_errno;

    } while (job->rc == ZMAP_AGAIN);

    job->end(job);

    ngx_set_errno(job->err);

    return job->rc;
}


#if (NGX_THREADS)

/* a queue that is full has been logged: the event loop does the work */

static ngx_int_t
ngx_http_zstd_mmap_post_task(ngx_http_zstd_mmap_job_t *job)
{
    ngx_thread_task_t  *task;

    task = job->task;

    task->ctx = job;
    task->handler = ngx_http_zstd_mmap_run_task;
    task->event.data = job;
    task->event.handler = ngx_http_zstd_mmap_end_task;
    task->event.log = ngx_cycle->log;

    return ngx_thread_task_post(job->conf.threads, task);
}


static void
ngx_http_zstd_mmap_run_task(void *data, ngx_log_t *log)
{
    ngx_http_zstd_mmap_job_t *job = data;

    do {
        if (ngx_http_zstd_mmap_is_given_up(job)) {
            return;
        }

        job->rc = job->run(job);
        job->err = ngx_errno;

    } while (job->rc == ZMAP_AGAIN);
}


static void
ngx_http_zstd_mmap_end_task(ngx_event_t *ev)
{
    ngx_http_zstd_mmap_end_job(ev->data);
}

#endif


/* nginx ends its threads, and waits for what they do, before it exits */

static ngx_uint_t
ngx_http_zstd_mmap_is_given_up(ngx_http_zstd_mmap_job_t *job)
{
    return ngx_terminate || (ngx_exiting && job->wanted == 0);
}


static void
ngx_http_zstd_mmap_run_slice(ngx_event_t *ev)
{
    ngx_http_zstd_mmap_job_t  *job;

    job = ev->data;

    job->rc = job->run(job);
    job->err = ngx_errno;

    if (job->rc == ZMAP_AGAIN && !ngx_http_zstd_mmap_is_given_up(job)) {
        ngx_http_zstd_mmap_next_slice(job);
        return;
    }

    ngx_http_zstd_mmap_end_job(job);
}


static void
ngx_http_zstd_mmap_next_slice(ngx_http_zstd_mmap_job_t *job)
{
    if (job->delay) {
        ngx_add_timer(&job->event, job->delay);

    } else {
        ngx_post_event(&job->event, &ngx_posted_next_events);
    }
}


/* nothing has come of a job that was given up: nobody may be told its end */

static void
ngx_http_zstd_mmap_end_job(ngx_http_zstd_mmap_job_t *job)
{
    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                   "zstd mmap: end of job %p rc:%d", job, job->rc);

    if (job->rc == ZMAP_AGAIN) {

        if (ngx_terminate) {
            /* the process exits when this turn has ended */
            return;
        }

        if (job->wanted) {
            /* somebody has come since */
            ngx_http_zstd_mmap_start_job(job, job->ended);
            return;
        }
    }

    job->ended(job);
}


void
ngx_http_zstd_mmap_destroy_job(ngx_http_zstd_mmap_job_t *job)
{
    ngx_queue_remove(&job->queue);

    if (job->event.posted) {
        ngx_delete_posted_event(&job->event);
    }

    if (job->event.timer_set) {
        ngx_del_timer(&job->event);
    }

    ngx_http_zstd_mmap_close_input(&job->input);

    job->input.worker->streams -= job->charged;

    if (job->body) {
        zmap_bodies_release(job->input.worker->bodies, job->body);
    }

    /* no request may be left to do that */
    ngx_http_zstd_mmap_show_worker(job->input.worker);

    zmap_file_unref(job->input.file);

    if (job->input.fd != NGX_INVALID_FILE
        && ngx_close_file(job->input.fd) == NGX_FILE_ERROR)
    {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                      ngx_close_file_n " of a decoded file failed");
    }

    ngx_destroy_pool(job->pool);
}


void
ngx_http_zstd_mmap_exit_jobs(void)
{
    ngx_queue_t               *q;
    ngx_http_zstd_mmap_job_t  *job;

    if (ngx_http_zstd_mmap_jobs.next == NULL) {
        return;
    }

    while (!ngx_queue_empty(&ngx_http_zstd_mmap_jobs)) {
        q = ngx_queue_head(&ngx_http_zstd_mmap_jobs);
        job = ngx_queue_data(q, ngx_http_zstd_mmap_job_t, queue);

        ngx_http_zstd_mmap_destroy_job(job);
    }
}
