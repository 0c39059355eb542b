/* Where libraries of the toolkit are looked for: stand-ins, under a name that no loader knows, in folders of our own.
 */

#include "harness/base/test_beside.h"
#include "harness/base/test_folder.h"
#include "kernels/cuda/library.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const names[] = { "libha_sought.so.2", "libha_sought.so.1", NULL };

static void put(const char *folder, const char *path, const char *library)
{
    char to[4096 + 64];
    mkdir(test_path(folder), 0777);
    snprintf(to, sizeof to, "%s", beside(library));
    assert_int_equal(symlink(to, test_path(path)), 0);
}

static int begin(void **state)
{
    const int wrong = test_folder_make(state);
    char path[4096 + 64];
    mkdir(test_path("home"), 0777);
    mkdir(test_path("path"), 0777);
    snprintf(path, sizeof path, "%s", test_path("home"));
    setenv("CUDA_HOME", path, 1);
    snprintf(path, sizeof path, "%s", test_path("path"));
    setenv("CUDA_PATH", path, 1);
    return wrong;
}

TEST_WITH(what_no_place_has_is_not_found, begin, test_folder_remove)
{
    size_t at = 0;
    assert_null(ha_cuda_library_next(names, &at));
    assert_null(ha_cuda_library_next(names, &at));
    unsetenv("CUDA_HOME");
    setenv("CUDA_PATH", "", 1);
    assert_null(ha_cuda_library_next(names, &(size_t){ 0 }));
}

/* In each place the name that comes first; and where that one will not do, the next place. */
TEST_WITH(places_go_in_order, begin, test_folder_remove)
{
    size_t at = 0;
    put("home/lib64", "home/lib64/libha_sought.so.1", "fake_nvml_older.so");
    put("path/lib", "path/lib/libha_sought.so.2", "fake_nvml.so");
    void *first = ha_cuda_library_next(names, &at), *second = ha_cuda_library_next(names, &at);
    assert_true(first && second && first != second);
    assert_non_null(dlsym(first, "nvmlDeviceGetCurrentClocksThrottleReasons"));
    assert_non_null(dlsym(second, "nvmlDeviceGetCurrentClocksEventReasons"));
    assert_null(ha_cuda_library_next(names, &at));
    dlclose(first);
    dlclose(second);
}

TEST_WITH(what_lacks_a_symbol_is_passed_over, begin, test_folder_remove)
{
    put("home/lib64", "home/lib64/libha_sought.so.2", "fake_cublas_unbound.so");
    put("path/lib64", "path/lib64/libha_sought.so.1", "fake_nvml.so");
    void *library = ha_cuda_library_next(names, &(size_t){ 0 });
    assert_non_null(library);
    assert_non_null(dlsym(library, "nvmlInit_v2"));
    dlclose(library);
}

TEST_WITH(cupti_has_a_folder_of_its_own, begin, test_folder_remove)
{
    mkdir(test_path("home/extras"), 0777);
    mkdir(test_path("home/extras/CUPTI"), 0777);
    put("home/extras/CUPTI/lib64", "home/extras/CUPTI/lib64/libha_sought.so.1", "fake_nvml.so");
    void *library = ha_cuda_library_next(names, &(size_t){ 0 });
    assert_non_null(library);
    dlclose(library);
}
