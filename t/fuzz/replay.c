
/*
 * Runs a fuzz target over every file of the folders given; prints TAP.
 */


#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "fuzz.h"


static unsigned  replay_done;
static unsigned  replay_failed;


static void
replay_result(int ok, const char *folder, const char *name, const char *why)
{
    replay_done++;
    replay_failed += !ok;

    printf("%sok %u - %s%s%s%s%s\n", ok ? "" : "not ", replay_done, folder,
           name ? "/" : "", name ? name : "", why ? ": " : "",
           why ? why : "");
}


static int
replay_filter(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}


/* the content of a regular file of at most 64 MiB, or NULL and errno */

static uint8_t *
replay_read(const char *path, size_t *size)
{
    FILE         *file;
    uint8_t      *data;
    struct stat   st;

    file = fopen(path, "rb");

    if (file == NULL) {
        return NULL;
    }

    data = NULL;
    errno = EINVAL;

    if (fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode)
        && st.st_size <= 64 * 1024 * 1024)
    {
        *size = (size_t) st.st_size;
        data = malloc(*size + 1);

        if (data && fread(data, 1, *size, file) != *size) {
            free(data);
            data = NULL;
            errno = EIO;
        }
    }

    fclose(file);

    return data;
}


static void
replay_file(const char *folder, const char *name)
{
    char      path[4096];
    size_t    size;
    uint8_t  *data;

    if ((size_t) snprintf(path, sizeof(path), "%s/%s", folder, name)
        >= sizeof(path))
    {
        replay_result(0, folder, name, "path too long");
        return;
    }

    data = replay_read(path, &size);

    if (data == NULL) {
        replay_result(0, folder, name, strerror(errno));
        return;
    }

    /* names the file, in case the target ends the program */

    printf("# %s\n", path);
    fflush(stdout);

    (void) LLVMFuzzerTestOneInput(data, size);
    free(data);

    replay_result(1, folder, name, NULL);
}


static void
replay_folder(const char *folder)
{
    int              i, n;
    struct dirent  **entries;

    n = scandir(folder, &entries, replay_filter, alphasort);

    if (n == -1) {
        replay_result(0, folder, NULL, strerror(errno));
        return;
    }

    if (n == 0) {
        replay_result(0, folder, NULL, "no files");
    }

    for (i = 0; i < n; i++) {
        replay_file(folder, entries[i]->d_name);
        free(entries[i]);
    }

    free(entries);
}


int
main(int argc, char **argv)
{
    int  i;

    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER...\n", argv[0]);
        return 2;
    }

    for (i = 1; i < argc; i++) {
        replay_folder(argv[i]);
    }

    /* last, so that a target that ends the program leaves no plan */

    printf("1..%u\n", replay_done);

    return replay_failed != 0;
}
