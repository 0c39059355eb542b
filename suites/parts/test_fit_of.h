#ifndef HA_PARTS_TEST_FIT_OF_H
#define HA_PARTS_TEST_FIT_OF_H

/* For tests: a fit that is read back, of some case, by which a part learns its numbers. */

#include "harness/base/fit.h"
#include "harness/base/test.h"

#include <unistd.h>

static inline struct ha_fit *fit_of(const struct ha_tensor *tensor, size_t count)
{
    static const struct ha_provenance origin = { "m", "a text", 1 };
    static const struct ha_fit_about about = { { "v", "a=1", "m", "1", "4", "2", "8", "0", "iid", "1", "c", "h" },
                                               &origin,
                                               1 };
    struct ha_fit_writer writer = { .tensor = NULL };
    struct ha_fit *fit;
    struct ha_why why;
    char path[256];
    const int file = mkstemps(test_template(path, sizeof path, ".fit"), 4);
    assert_true(file >= 0);
    close(file);
    for (size_t i = 0; i < count; i++) assert_int_equal(ha_fit_put(&writer, &tensor[i], &why), HA_OK);
    assert_int_equal(ha_fit_write(&writer, path, &about, &why), HA_OK);
    assert_int_equal(ha_fit_open(&fit, path, &why), HA_OK);
    unlink(path);
    ha_fit_writer_free(&writer);
    return fit;
}

#endif
