#include "harness/base/array.h"
#include "harness/base/test.h"

TEST(grows_and_keeps_what_it_holds)
{
    uint32_t *list = NULL;
    size_t room = 0, moves = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        const size_t before = room;
        assert_true(ha_array_room(&list, &room, i + 1, sizeof *list));
        assert_true(room > i && (room == before || room >= 2 * before));
        moves += room != before;
        list[i] = i;
    }
    for (uint32_t i = 0; i < 10000; i++) assert_int_equal(list[i], i);
    assert_true(moves < 15);
    assert_true(ha_array_room(&list, &room, 1000000, sizeof *list) && room == 1000000);
    free(list);
}

TEST(no_memory_changes_nothing)
{
    char *list = NULL;
    size_t room = 0;
    assert_true(ha_array_room(&list, &room, 5, 1));
    char *const was = list;
    const size_t had = room;
    assert_false(ha_array_room(&list, &room, SIZE_MAX / 2, 16)); /* their product overflows */
    assert_true(list == was && room == had);
    free(list);
}
