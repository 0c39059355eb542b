#include "harness/base/file.h"
#include "harness/base/test_folder.h"
#include "harness/base/why.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct ha_why why;

/* writes `text` into the file that a user calls NAME of the test's folder */
static enum ha_status put(const char *path, const char *text)
{
    struct ha_whole_file out;
    HA_TRY(ha_whole_file_named(&out, path, &why));
    fputs(text, out.file);
    return ha_whole_file_close(&out, &why);
}

static mode_t kind(const char *path)
{
    struct stat at;
    assert_int_equal(lstat(path, &at), 0);
    return at.st_mode & S_IFMT;
}

TEST_WITH(a_named_file_is_replaced_whole, test_folder_make, test_folder_remove)
{
    struct ha_whole_file out;
    assert_int_equal(put(test_path("a"), "old"), HA_OK);
    assert_int_equal(ha_whole_file_named(&out, test_path("a"), &why), HA_OK);
    fputs("new", out.file);
    fflush(out.file);
    assert_string_equal(test_text("a"), "old");
    ha_whole_file_drop(&out);
    assert_string_equal(test_text("a"), "old");
    assert_int_not_equal(access(out.part, F_OK), 0);
    assert_int_equal(put(test_path("a"), "new"), HA_OK);
    assert_string_equal(test_text("a"), "new");
}

TEST_WITH(a_link_stays_and_its_file_is_written, test_folder_make, test_folder_remove)
{
    char link[TEST_PATH_MAX];
    assert_int_equal(mkdir(test_path("d"), 0777), 0);
    assert_int_equal(symlink("d/a", test_path("relative")), 0); /* to nothing yet */
    assert_int_equal(symlink("relative", test_path("twice")), 0);
    for (int i = 0; i < 2; i++) {
        const char *text = i ? "second" : "first";
        strcpy(link, test_path("twice"));
        assert_int_equal(put(link, text), HA_OK);
        assert_int_equal(kind(link), S_IFLNK);
        assert_int_equal(kind(test_path("relative")), S_IFLNK);
        assert_int_equal(kind(test_path("d/a")), S_IFREG);
        assert_string_equal(test_text("d/a"), text);
    }
    assert_int_equal(symlink("round", test_path("round")), 0);
    assert_int_equal(put(test_path("round"), "x"), HA_ERROR);
    assert_contains(why.text, "round: cannot write: ");
    assert_int_equal(put(test_path("d"), "x"), HA_ERROR);
    assert_contains(why.text, "d: cannot write: it is a folder; give the name of a file");
}

/* Not of /dev/null itself: as root, a program that is wrong would replace it. */
TEST_WITH(a_pipe_and_stdout_are_written_directly, test_folder_make, test_folder_remove)
{
    char text[64] = "", pipe[TEST_PATH_MAX], link[TEST_PATH_MAX];
    strcpy(pipe, test_path("pipe"));
    assert_int_equal(mkfifo(pipe, 0666), 0);
    const int in = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_int_equal(put(pipe, "of a pipe"), HA_OK);
    assert_int_equal(read(in, text, sizeof text - 1), 9);
    assert_string_equal(text, "of a pipe");
    assert_int_equal(kind(pipe), S_IFIFO);
    close(in);

    strcpy(link, test_path("stdout"));
    assert_int_equal(symlink("/proc/self/fd/1", link), 0); /* as /dev/stdout */
    /* stdout that goes to a file: between what is printed before and behind it */
    fflush(stdout);
    const int before = dup(STDOUT_FILENO), to = open(test_path("out"), O_CREAT | O_WRONLY, 0666);
    dup2(to, STDOUT_FILENO);
    printf("before ");
    const enum ha_status status = put(link, "in ");
    printf("behind");
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    close(to);
    assert_int_equal(status, HA_OK);
    assert_string_equal(test_text("out"), "before in behind");
}
