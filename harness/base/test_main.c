/* The main of the tests that have none. Weak: it is linked with all. Without a test it fails. */

#include "harness/base/test.h"

__attribute__((weak)) int main(int argc, char **argv) { return !test_list_count || test_main(argc, argv, NULL, NULL); }
