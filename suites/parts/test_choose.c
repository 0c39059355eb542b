/* How many of n candidates a share is. Which are chosen `habench check` judges. */

#include "harness/base/test.h"
#include "suites/parts/choose.h"

/* Counted in integers: so many hundredths of n candidates, rounded up. */
TEST(shares_are_rounded_up)
{
    for (size_t percent = 1; percent <= 100; percent++)
        for (size_t n = 0; n <= 1000; n++)
            assert_int_equal(ha_share_of((double)percent / 100, n), (percent * n + 99) / 100);
    assert_int_equal(ha_share_of(1e-6, 5), 1);
    assert_int_equal(ha_share_of(1e-6, 2000001), 3);
}
