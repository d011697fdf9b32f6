#include "daemon/security/sandbox/seccomp.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rueda::security {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which number a system call has on this architecture is not known to the sandbox"
#endif
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "an argument's low half comes first");

// The last system call that was there when the list was written (Linux 5.17). Later ones are as if
// the kernel had none of them, because a C library that is newer tries them, and takes ENOSYS for
// the sign to use older ones; EPERM it takes for the answer.
constexpr uint32_t kNewest = 450;

// What Linux 5.17 calls a name for a piece of memory; later C libraries give such names.
constexpr uint32_t kSetVma = 0x53564d41;

constexpr uint32_t kAllowed = SECCOMP_RET_ALLOW;
constexpr uint32_t kRefused = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kAbsent = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kWhole = std::numeric_limits<uint32_t>::max();

// The calls that are allowed whatever their arguments are. Those of every message come first:
// kernels before Linux 5.11 go through the list for each call.
constexpr int kPlain[] = {
    // Waiting, and what moves bytes.
    SYS_futex,
    SYS_read,
    SYS_write,
    SYS_sendmsg,
    SYS_recvmsg,
    SYS_epoll_pwait,
    SYS_sched_yield,
    SYS_readv,
    SYS_writev,
    SYS_ppoll,
    SYS_epoll_ctl,
    SYS_sendto,
    SYS_recvfrom,
    SYS_timerfd_settime,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_clock_getres,
    SYS_pselect6,
    SYS_epoll_create1,
    SYS_epoll_pwait2,
    SYS_timerfd_create,
    SYS_timerfd_gettime,
    SYS_eventfd2,
    SYS_pipe2,
    SYS_futex_waitv,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_pread64,
    SYS_pwrite64,
    SYS_preadv,
    SYS_preadv2,
    SYS_pwritev,
    SYS_pwritev2,
    // Sockets, but for their making.
    SYS_accept4,
    SYS_accept,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_shutdown,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_socketpair,
    // Memory that is not to be executed.
    SYS_munmap,
    SYS_mremap,
    SYS_brk,
    SYS_madvise,
    SYS_memfd_create,
    SYS_membarrier,
    // Files. Landlock says which.
    SYS_openat,
    SYS_close,
    SYS_close_range,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_lseek,
    SYS_fcntl,
    SYS_dup,
    SYS_dup3,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_unlinkat,
    SYS_getcwd,
    SYS_statfs,
    SYS_fstatfs,
    SYS_umask,
    // Threads and signals of this process.
    SYS_exit,
    SYS_exit_group,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_getcpu,
    SYS_sched_getaffinity,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_gettid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_restart_syscall,
    // Who and where this is.
    SYS_getpid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getgroups,
    SYS_getresuid,
    SYS_getresgid,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_getrlimit,
    SYS_times,
    SYS_getrandom,
#if defined(__x86_64__)
    // The older forms of some of these, which other architectures never had.
    SYS_poll,
    SYS_epoll_wait,
    SYS_select,
    SYS_time,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_unlink,
    SYS_pipe,
    SYS_dup2,
    SYS_eventfd,
    SYS_epoll_create,
    SYS_arch_prctl,
#endif
};

// A program of the kernel's classic BPF, which is run for each system call. Each call has a block
// that begins with the question whether it is meant, and ends with an answer.
class Filter {
 public:
  Filter();
  // Begins the block of a call whose answer depends on its arguments.
  Filter& call(int number);
  // These give an answer if (or unless) the low half of an argument, under a mask, has this value.
  // The kernel takes the arguments that are looked at here for 32 bits, too, or their flags are.
  Filter& answer_if(unsigned argument, uint32_t mask, uint32_t value, uint32_t answer);
  Filter& answer_unless(unsigned argument, uint32_t mask, uint32_t value, uint32_t answer);
  // Ends the block: what has had no answer gets this one.
  Filter& otherwise(uint32_t answer);
  // Ends the program.
  void finish();
  // Returns an errno; 0: the filter is in force.
  int load();

 private:
  void add(uint16_t code, uint32_t operand, uint8_t if_true = 0, uint8_t if_false = 0) {
    program_.push_back({code, if_true, if_false, operand});
  }
  void load_argument(unsigned argument, uint32_t mask);
  void load_number() { add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)); }
  void answer(uint32_t what) { add(BPF_RET | BPF_K, what); }

  std::vector<sock_filter> program_;
  size_t block_ = 0;  // Where the current block begins.
};

Filter::Filter() {
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
  // Another architecture's calls, such as those of 32-bit programs, have other numbers.
  add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  answer(kRefused);
  load_number();
  for (const int number : kPlain) call(number).otherwise(kAllowed);
}

Filter& Filter::call(int number) {
  block_ = program_.size();
  add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number));
  return *this;
}

void Filter::load_argument(unsigned argument, uint32_t mask) {
  add(BPF_LD | BPF_W | BPF_ABS,
      static_cast<uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(uint64_t)));
  if (mask != kWhole) add(BPF_ALU | BPF_AND | BPF_K, mask);
}

Filter& Filter::answer_if(unsigned argument, uint32_t mask, uint32_t value, uint32_t what) {
  load_argument(argument, mask);
  add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
  answer(what);
  return *this;
}

Filter& Filter::answer_unless(unsigned argument, uint32_t mask, uint32_t value, uint32_t what) {
  load_argument(argument, mask);
  add(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
  answer(what);
  return *this;
}

// A call that is not meant goes on behind the block, whose length is known now. Within the block
// the number is overwritten, and every way through it ends there.
Filter& Filter::otherwise(uint32_t what) {
  answer(what);
  program_[block_].jf = static_cast<uint8_t>(program_.size() - block_ - 1);
  return *this;
}

void Filter::finish() {
  add(BPF_JMP | BPF_JGT | BPF_K, kNewest, 0, 1);
  answer(kAbsent);
  answer(kRefused);
}

int Filter::load() {
  sock_fprog program{};
  program.len = static_cast<unsigned short>(program_.size());
  program.filter = program_.data();
  // Without the flag kernels before Linux 5.16 turn mitigations on that are for programs which run
  // code of others, and that slow all of this one down.
  const long loaded =
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
  return loaded == 0 ? 0 : errno;
}

void add_memory(Filter& filter) {
  // Libraries are mapped to be executed, and nothing that can be written is.
  constexpr uint32_t kBoth = PROT_WRITE | PROT_EXEC;
  filter.call(SYS_mmap).answer_if(2, kBoth, kBoth, kRefused).otherwise(kAllowed);
  filter.call(SYS_mprotect).answer_if(2, PROT_EXEC, PROT_EXEC, kRefused).otherwise(kAllowed);
}

void add_processes(Filter& filter) {
  // Threads may be started, and processes not. The flags of clone3 are in memory, where no filter
  // sees them: without it the C library uses clone.
  filter.call(SYS_clone).answer_if(0, CLONE_THREAD, CLONE_THREAD, kAllowed).otherwise(kRefused);
  filter.call(SYS_clone3).otherwise(kAbsent);
  // A process that aborts signals itself. GPU workers are ended by the fork server.
  filter.call(SYS_tgkill)
      .answer_if(0, kWhole, static_cast<uint32_t>(::getpid()), kAllowed)
      .otherwise(kRefused);
  filter.call(SYS_prlimit64).answer_if(0, kWhole, 0, kAllowed).otherwise(kRefused);
  filter.call(SYS_prctl)
      .answer_if(0, kWhole, PR_SET_NAME, kAllowed)
      .answer_if(0, kWhole, PR_GET_NAME, kAllowed)
      .answer_if(0, kWhole, kSetVma, kAllowed)
      .otherwise(kRefused);
}

void add_devices(Filter& filter) {
  // The C library asks the kernel for the machine's addresses over netlink, and verbs for its
  // devices. Other families have been the way into the kernel for many attacks.
  filter.call(SYS_socket)
      .answer_if(0, kWhole, AF_UNIX, kAllowed)
      .answer_if(0, kWhole, AF_INET, kAllowed)
      .answer_if(0, kWhole, AF_INET6, kAllowed)
      .answer_unless(0, kWhole, AF_NETLINK, kRefused)
      .answer_if(2, kWhole, NETLINK_ROUTE, kAllowed)
      .answer_if(2, kWhole, NETLINK_RDMA, kAllowed)
      .otherwise(kRefused);
  // These two put words into the mouth of whoever sits at the terminal of a daemon.
  filter.call(SYS_ioctl)
      .answer_if(1, kWhole, TIOCSTI, kRefused)
      .answer_if(1, kWhole, TIOCLINUX, kRefused)
      .otherwise(kAllowed);
}

}  // namespace

Status enter_seccomp() {
  Filter filter;
  add_memory(filter);
  add_processes(filter);
  add_devices(filter);
  filter.finish();
  // The kernel takes no filter of a process that could still become another user by a program.
  const int error = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? filter.load() : errno;
  if (error == 0) return Status::ok();
  const bool is_missing = error == EINVAL || error == ENOSYS;
  return {Code::kUnavailable, is_missing
                                  ? "the kernel has no seccomp filters"
                                  : std::string("seccomp cannot be used: ") + std::strerror(error)};
}

}  // namespace rueda::security
