
/*
 * Keeps verdicts with the file version and shares them between workers.
 */


#include "ngx_http_zstd_mmap_verdict.h"
#include "ngx_http_zstd_mmap_stats.h"


static ngx_uint_t ngx_http_zstd_mmap_is_fault(zmap_rc_e rc);
static void ngx_http_zstd_mmap_tell_others(ngx_http_zstd_mmap_input_t *input,
    zmap_rc_e rc);
static ngx_http_zstd_mmap_zone_t *ngx_http_zstd_mmap_get_stage_zone(
    ngx_http_zstd_mmap_input_t *input);


void
ngx_http_zstd_mmap_ask_others(ngx_http_zstd_mmap_input_t *input)
{
    zmap_file_t                   *file;
    ngx_http_zstd_mmap_zone_t     *zone;
    ngx_http_zstd_mmap_verdict_t   verdict;

    file = input->file;
    zone = ngx_http_zstd_mmap_get_stage_zone(input);

    if (zone == NULL
        || ngx_http_zstd_mmap_get_verdict(zone, &file->version, &verdict,
                                          input->log)
           != NGX_OK)
    {
        return;
    }

    if (verdict.rc != ZMAP_OK) {
        file->verdict = verdict.rc;
        return;
    }

    file->verified |= verdict.verified;

    if (file->verdict == ZMAP_AGAIN && file->walk.offset == 0) {
        file->walk.frames = verdict.frames;
        file->verdict = ZMAP_OK;
        file->told = 1;
    }
}


void
ngx_http_zstd_mmap_judge(ngx_http_zstd_mmap_input_t *input, zmap_rc_e rc)
{
    if (!ngx_http_zstd_mmap_is_fault(rc)) {
        return;
    }

    ngx_http_zstd_mmap_count(verify_failures);

    input->file->verdict = rc;

    ngx_http_zstd_mmap_tell_others(input, rc);
}


/* only what the bytes of the version themselves say is kept */

static ngx_uint_t
ngx_http_zstd_mmap_is_fault(zmap_rc_e rc)
{
    return rc >= ZMAP_EMPTY && rc != ZMAP_WINDOW && rc != ZMAP_DICTIONARY;
}


void
ngx_http_zstd_mmap_judge_walk(ngx_http_zstd_mmap_input_t *input, zmap_rc_e rc)
{
    ngx_http_zstd_mmap_judge(input, rc);

    /* a decoder may have found meanwhile what no walk can */

    if (rc == ZMAP_OK && input->file->verdict == ZMAP_AGAIN) {
        input->file->verdict = ZMAP_OK;
        ngx_http_zstd_mmap_tell_others(input, ZMAP_OK);
    }
}


void
ngx_http_zstd_mmap_judge_content(ngx_http_zstd_mmap_input_t *input,
    zmap_rc_e rc)
{
    ngx_http_zstd_mmap_judge(input, rc);

    if (rc == ZMAP_OK && !input->file->verified) {
        input->file->verified = 1;
        ngx_http_zstd_mmap_tell_others(input, ZMAP_OK);
    }
}


/*
 * A version that was too young when the request began may have been read as two
 * sets of bytes: no verdict on the one that stays.
 */

static void
ngx_http_zstd_mmap_tell_others(ngx_http_zstd_mmap_input_t *input,
    zmap_rc_e rc)
{
    zmap_file_t                   *file;
    ngx_http_zstd_mmap_zone_t     *zone;
    ngx_http_zstd_mmap_verdict_t   verdict;

    file = input->file;
    zone = ngx_http_zstd_mmap_get_stage_zone(input);

    if (zone == NULL || input->young) {
        return;
    }

    if (rc == ZMAP_OK && file->verdict != ZMAP_OK) {
        /* somebody walks it once more, for its index */
        return;
    }

    ngx_memzero(&verdict, sizeof(ngx_http_zstd_mmap_verdict_t));

    verdict.rc = rc;

    if (rc == ZMAP_OK) {
        verdict.frames = file->walk.frames;
        verdict.frames.index = NULL;
        verdict.frames.nindex = 0;
        verdict.verified = file->verified;
    }

    ngx_http_zstd_mmap_put_verdict(zone, &file->version, &verdict, input->log);
}


ngx_int_t
ngx_http_zstd_mmap_claim(ngx_http_zstd_mmap_input_t *input)
{
    ngx_int_t                   rc;
    ngx_http_zstd_mmap_zone_t  *zone;

    zone = ngx_http_zstd_mmap_get_stage_zone(input);

    if (zone == NULL || input->young) {
        return NGX_OK;
    }

    rc = ngx_http_zstd_mmap_claim_verify(zone, &input->file->version,
                                         input->log);

    /* where it cannot be said, everybody verifies for himself */

    return (rc == NGX_BUSY) ? NGX_BUSY : NGX_OK;
}


void
ngx_http_zstd_mmap_release_claim(ngx_http_zstd_mmap_input_t *input)
{
    ngx_http_zstd_mmap_zone_t  *zone;

    zone = ngx_http_zstd_mmap_get_stage_zone(input);

    if (zone) {
        ngx_http_zstd_mmap_release_verify(zone, &input->file->version,
                                          input->log);
    }
}


static ngx_http_zstd_mmap_zone_t *
ngx_http_zstd_mmap_get_stage_zone(ngx_http_zstd_mmap_input_t *input)
{
    return input->conf->stage ? input->conf->stage->zone : NULL;
}
