# Settings of the sanitizers' run time: source this before running a sanitizer build by hand; the test
# scripts do. docs/testing.md says why each is there.
# shellcheck shell=bash disable=SC2034

sanitizers_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
export LSAN_OPTIONS="suppressions=$sanitizers_dir/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="ignore_noninstrumented_modules=1:second_deadlock_stack=1:suppressions=$sanitizers_dir/tsan.supp"

# Kernels that randomise more than 28 bits of an address place mappings where the sanitizers of GCC 12
# and clang 14 do not expect any; then programs run without randomisation.
sanitizer_prefix=()
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ]; then
  sanitizer_prefix=(setarch "$(uname -m)" -R)
fi
