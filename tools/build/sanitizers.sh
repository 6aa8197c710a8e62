# Options of the sanitizers for a test run.  Sourced; needs $root.

# A report must not look like an ordinary exit, and every leak counts but for
# those of nginx itself and of libraries, listed in leaks.supp with a reason.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99
ASAN_OPTIONS+=:strict_string_checks=1
# Every dynamic module of nginx defines ngx_modules and ngx_module_names anew.
ASAN_OPTIONS+=:detect_odr_violation=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99
export LSAN_OPTIONS=suppressions=$root/tools/build/leaks.supp
LSAN_OPTIONS+=:print_suppressions=0
