// Tests the sandbox in children of this process, because nobody gets out of one.
#include "daemon/security/sandbox/sandbox.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/fd.h"
#include "tests/support/temporary_folder.h"

namespace rueda::security {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Runs `body` in a child, and returns what it returns: one line for each thing that is amiss.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = body();
    const bool is_written =
        ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(is_written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t bytes = 0; (bytes = ::read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(bytes));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) text += "the child ended with status " + std::to_string(status) + '\n';
  return text;
}

// Collects what is amiss.
class Report {
 public:
  void expect(bool is_so, const std::string& what) {
    if (!is_so) text_ += what + " (" + std::strerror(errno) + ")\n";
  }
  // Expects that a call has failed with this error.
  void refused(long result, const std::string& what, int error = EPERM) {
    const int found = errno;
    expect(result == -1, what + " was not refused");
    if (result != -1 || found == error) return;
    text_ += what + " failed with " + std::strerror(found) + '\n';
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool can_read(const std::string& path) { return std::ifstream(path).good(); }

// Returns the error of a file that is opened for writing, and 0 if it was.
int error_of_writing(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return file.is_open() ? 0 : errno;
}

// Lets one system call of this process fail, as a kernel that lacks it does.
void take_away(long number, int error) {
  std::array<sock_filter, 4> program{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(number)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  sock_fprog all{static_cast<unsigned short>(program.size()), program.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all);
}

class SandboxTest : public ::testing::Test {
 protected:
  // Says what this kernel, and this build, can give.
  SandboxTest() {
    const std::string parts = in_child([] {
      const Sandbox sandbox =
          enter_sandbox({.mode = "auto", .sockets = {"@x"}, .tls_dir = ""}).value();
      return std::string(sandbox.has_seccomp ? "s" : "") + (sandbox.has_landlock ? "l" : "");
    });
    has_seccomp_ = parts.find('s') != std::string::npos;
    has_landlock_ = parts.find('l') != std::string::npos;
  }

  SandboxOptions options(const std::string& mode = "auto") const {
    return {.mode = mode,
            .sockets = {folder_.path() + "/run/ruedad.sock", "@abstract",
                        folder_.path() + "/run-of-a-team/ruedad.sock"},
            .tls_dir = tls_dir()};
  }
  std::string tls_dir() const { return folder_.path() + "/tls"; }
  // Enters the sandbox in a child, and returns what `body` finds amiss there.
  std::string inside(const std::function<void(Report&)>& body) const {
    return in_child([&] {
      const Result<Sandbox> sandbox = enter_sandbox(options());
      if (!sandbox.is_ok()) return sandbox.status().message();
      Report report;
      body(report);
      return report.text();
    });
  }
  void write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(folder_.path()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const testing_support::TemporaryFolder folder_;
  bool has_seccomp_ = false;
  bool has_landlock_ = false;
};

#define NEEDS_SECCOMP()                                                \
  if (!has_seccomp_)                                                   \
  GTEST_SKIP() << "this kernel takes no seccomp filter, or this is a " \
                  "sanitizer's"
#define NEEDS_LANDLOCK() \
  if (!has_landlock_) GTEST_SKIP() << "this kernel has no Landlock, or this is a sanitizer's"

TEST_F(SandboxTest, CallsThatADaemonNeverMakesAreRefused) {
  NEEDS_SECCOMP();
  struct Call {
    const char* name;
    long number;
  };
  // A call that was let through would fail with another error, since its arguments are no good.
  static constexpr Call kCalls[] = {
      {"execve", SYS_execve},
      {"execveat", SYS_execveat},
      {"ptrace", SYS_ptrace},
      {"process_vm_readv", SYS_process_vm_readv},
      {"process_vm_writev", SYS_process_vm_writev},
      {"pidfd_getfd", SYS_pidfd_getfd},
      {"bpf", SYS_bpf},
      {"userfaultfd", SYS_userfaultfd},
      {"perf_event_open", SYS_perf_event_open},
      {"io_uring_setup", SYS_io_uring_setup},
      {"add_key", SYS_add_key},
      {"request_key", SYS_request_key},
      {"keyctl", SYS_keyctl},
      {"mount", SYS_mount},
      {"umount2", SYS_umount2},
      {"fsopen", SYS_fsopen},
      {"move_mount", SYS_move_mount},
      {"open_tree", SYS_open_tree},
      {"mount_setattr", SYS_mount_setattr},
      {"pivot_root", SYS_pivot_root},
      {"chroot", SYS_chroot},
      {"setns", SYS_setns},
      {"unshare", SYS_unshare},
      {"open_by_handle_at", SYS_open_by_handle_at},
      {"kexec_load", SYS_kexec_load},
      {"init_module", SYS_init_module},
      {"finit_module", SYS_finit_module},
      {"delete_module", SYS_delete_module},
      {"reboot", SYS_reboot},
      {"swapon", SYS_swapon},
      {"swapoff", SYS_swapoff},
      {"personality", SYS_personality},
      {"quotactl", SYS_quotactl},
      {"acct", SYS_acct},
      {"settimeofday", SYS_settimeofday},
      {"setuid", SYS_setuid},
      {"setgroups", SYS_setgroups},
      {"fchmodat", SYS_fchmodat},
      {"fchownat", SYS_fchownat},
      {"linkat", SYS_linkat},
      {"symlinkat", SYS_symlinkat},
      {"renameat2", SYS_renameat2},
      {"mkdirat", SYS_mkdirat},
      {"mknodat", SYS_mknodat},
      {"shmget", SYS_shmget},
      {"seccomp", SYS_seccomp},
  };
  EXPECT_EQ(inside([](Report& report) {
              for (const Call& call : kCalls) {
                report.refused(::syscall(call.number, -1L, -1L, -1L, -1L, -1L, -1L), call.name);
              }
            }),
            "");
}

TEST_F(SandboxTest, ACallThatIsNewerThanTheListIsAsIfTheKernelHadNone) {
  NEEDS_SECCOMP();
  EXPECT_EQ(inside([](Report& report) {
              report.refused(::syscall(462, -1L, -1L, -1L), "mseal", ENOSYS);
              report.refused(::syscall(SYS_clone3, nullptr, 0), "clone3", ENOSYS);
            }),
            "");
}

TEST_F(SandboxTest, NoProcessIsStartedOrReached) {
  NEEDS_SECCOMP();
  const pid_t parent = ::getpid();
  EXPECT_EQ(inside([parent](Report& report) {
              report.refused(::fork(), "fork");
              std::string program = "/bin/true";
              char* arguments[] = {program.data(), nullptr};
              pid_t pid = -1;
              const int error =
                  ::posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments, nullptr);
              report.expect(error == EPERM, "posix_spawn gave " + std::to_string(error));
              report.refused(::kill(parent, 0), "a signal to the parent");
              report.refused(::syscall(SYS_tgkill, parent, parent, 0), "one by tgkill");
              rlimit limit{};
              report.refused(::prlimit(parent, RLIMIT_NOFILE, nullptr, &limit), "prlimit");
              report.expect(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "its own limit");
              report.refused(::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl");
              // It may still end itself as abort() does.
              ::signal(SIGUSR1, SIG_IGN);
              report.expect(::raise(SIGUSR1) == 0, "a signal to itself");
            }),
            "");
}

TEST_F(SandboxTest, NoMemoryIsBothWrittenAndExecuted) {
  NEEDS_SECCOMP();
  EXPECT_EQ(inside([](Report& report) {
              constexpr size_t kBytes = 4096;
              const auto map = [](int protection) {
                return ::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
              };
              void* const both = map(PROT_READ | PROT_WRITE | PROT_EXEC);
              report.refused(both == MAP_FAILED ? -1 : 0, "mmap");
              void* const writable = map(PROT_READ | PROT_WRITE);
              report.expect(writable != MAP_FAILED, "memory");
              report.refused(::mprotect(writable, kBytes, PROT_READ | PROT_EXEC), "mprotect");
              report.expect(::mprotect(writable, kBytes, PROT_READ) == 0, "mprotect to read");
            }),
            "");
}

TEST_F(SandboxTest, SocketsAreThoseOfTheNetworkAndOfThisMachine) {
  NEEDS_SECCOMP();
  EXPECT_EQ(
      inside([](Report& report) {
        const auto make = [](int family, int type, int protocol) {
          return UniqueFd(::socket(family, type | SOCK_CLOEXEC, protocol)).is_open() ? 0 : -1;
        };
        report.refused(make(AF_PACKET, SOCK_DGRAM, 0), "AF_PACKET");
        report.refused(make(AF_ALG, SOCK_SEQPACKET, 0), "AF_ALG");
        report.refused(make(AF_VSOCK, SOCK_STREAM, 0), "AF_VSOCK");
        report.refused(make(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), "netfilter");
        report.expect(make(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) == 0, "the kernel's routes");
        report.expect(make(AF_UNIX, SOCK_SEQPACKET, 0) == 0, "AF_UNIX");
        report.expect(make(AF_INET, SOCK_STREAM, 0) == 0, "AF_INET");
        report.expect(make(AF_INET6, SOCK_STREAM, 0) == 0 || errno == EAFNOSUPPORT, "AF_INET6");
        // The terminal's input, were it one; the kernel says of a pipe that it has no such thing.
        report.refused(::ioctl(0, TIOCSTI, "x"), "TIOCSTI");
        int waiting = 0;
        int ends[2];
        report.expect(::pipe(ends) == 0 && ::ioctl(ends[0], FIONREAD, &waiting) == 0, "FIONREAD");
      }),
      "");
}

// A server on the loopback and its client, by threads of their own.
void talk_over_tcp(Report& report) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof address;
  report.expect(::bind(listener.get(), name, bytes) == 0 && ::listen(listener.get(), 1) == 0 &&
                    ::getsockname(listener.get(), name, &bytes) == 0,
                "a port");
  std::thread client([&] {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), name, bytes) == 0) (void)!::write(socket.get(), "hello", 5);
  });
  const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::array<char, 8> text{};
  report.expect(::recv(accepted.get(), text.data(), 5, MSG_WAITALL) == 5, "a connection");
  client.join();
}

TEST_F(SandboxTest, WhatTheDaemonNeedsStaysPossible) {
  EXPECT_EQ(inside([](Report& report) {
              talk_over_tcp(report);
              // A client's memory: made, sealed, sent and mapped.
              const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
              report.expect(::ftruncate(memory.get(), 4096) == 0, "the length of a memfd");
              report.expect(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0, "a seal");
              void* const mapped =
                  ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
              report.expect(mapped != MAP_FAILED, "shared memory");
              report.expect(::munmap(mapped, 4096) == 0, "munmap");
              const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
              const UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
              const UniqueFd event(::eventfd(1, EFD_CLOEXEC));
              epoll_event wanted{.events = EPOLLIN, .data = {}};
              report.expect(
                  epoll.is_open() && timer.is_open() &&
                      ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wanted) == 0 &&
                      ::epoll_wait(epoll.get(), &wanted, 1, 1000) == 1,
                  "a loop");
              uint64_t rings = 0;
              iovec piece{.iov_base = &rings, .iov_len = sizeof rings};
              report.expect(::preadv2(event.get(), &piece, 1, -1, RWF_NOWAIT) == 8, "a doorbell");
              addrinfo* found = nullptr;
              const int error = ::getaddrinfo("localhost", "80", nullptr, &found);
              report.expect(error == 0, std::string("localhost: ") + ::gai_strerror(error));
              if (error == 0) ::freeaddrinfo(found);
              ifaddrs* interfaces = nullptr;
              report.expect(::getifaddrs(&interfaces) == 0, "the machine's addresses");
              if (interfaces != nullptr) ::freeifaddrs(interfaces);
              report.expect(!read_file("/proc/self/statm").empty(), "/proc");
              report.expect(can_read("/etc/hosts"), "/etc/hosts");
              report.expect(::pthread_setname_np(::pthread_self(), "test") == 0, "a thread's name");
            }),
            "");
}

TEST_F(SandboxTest, SocketsAreMadeAndRemovedAndNothingElseWritten) {
  NEEDS_LANDLOCK();
  write("run/other", "");
  write("run-of-a-team/other", "");
  EXPECT_EQ(inside([this](Report& report) {
              for (const std::string& path : options().sockets) {
                if (path.starts_with('@')) continue;
                sockaddr_un address{};
                address.sun_family = AF_UNIX;
                path.copy(address.sun_path, sizeof address.sun_path - 1);
                const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
                report.expect(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                                     sizeof address) == 0,
                              "the socket " + path);
                report.expect(::unlink(path.c_str()) == 0, "its removal");
              }
              const std::string folder = folder_.path();
              for (const std::string& file :
                   {folder + "/run/new", folder + "/run-of-a-team/other", folder + "/run/other",
                    folder + "/new", std::string("/etc/rueda-new")}) {
                const int error = error_of_writing(file);
                // Who is not root could not write into /etc in any case.
                report.expect(error == EACCES || error == EROFS,
                              file + " was written, or gave " + std::strerror(error));
              }
              report.expect(error_of_writing("/dev/null") == 0, "/dev/null");
            }),
            "");
}

TEST_F(SandboxTest, OtherFilesCannotBeRead) {
  NEEDS_LANDLOCK();
  write("secret", "x");
  write("tls/tls.crt", "x");
  EXPECT_EQ(inside([this](Report& report) {
              report.expect(can_read(tls_dir() + "/tls.crt"), "a certificate");
              report.refused(can_read(folder_.path() + "/secret") ? 0 : -1, "a file", EACCES);
              std::error_code error;
              fs::directory_iterator(folder_.path(), error);
              report.expect(error == std::errc::permission_denied, "a folder was listed");
            }),
            "");
}

// `certs install` and Kubernetes replace all files at once behind a link in the folder.
TEST_F(SandboxTest, CertificatesAreReadAfterTheLinkInTheirFolderHasBeenReplaced) {
  write("tls/first/tls.crt", "1");
  fs::create_directory_symlink("first", tls_dir() + "/..data");
  fs::create_symlink("..data/tls.crt", tls_dir() + "/tls.crt");
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  std::thread replaces([&] {
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return;
    write("tls/second/tls.crt", "2");
    fs::create_directory_symlink("second", tls_dir() + "/..new");
    fs::rename(tls_dir() + "/..new", tls_dir() + "/..data");
  });
  EXPECT_EQ(inside([&](Report& report) {
              report.expect(read_file(tls_dir() + "/tls.crt") == "1", "the first");
              (void)!::write(go[1], "x", 1);
              for (int i = 0; i < 500 && read_file(tls_dir() + "/tls.crt") != "2"; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
              }
              report.expect(read_file(tls_dir() + "/tls.crt") == "2", "the second");
            }),
            "");
  ::close(go[1]);
  replaces.join();
  ::close(go[0]);
}

TEST_F(SandboxTest, CertificatesAreReadBesideTheFolderThatALinkMeans) {
  write("store/first/tls.crt", "1");
  write("store/second/tls.crt", "2");
  fs::create_directory_symlink("store/first", tls_dir());
  EXPECT_EQ(inside([this](Report& report) {
              report.expect(read_file(tls_dir() + "/tls.crt") == "1", "the first");
              // Where the link would lead then.
              report.expect(read_file(folder_.path() + "/store/second/tls.crt") == "2", "another");
            }),
            "");
}

TEST_F(SandboxTest, TheKernelShowsWhatIsInForce) {
  NEEDS_SECCOMP();
  const std::string status = in_child([this] {
    return enter_sandbox(options()).is_ok() ? read_file("/proc/self/status") : "refused";
  });
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2\n"));
}

TEST_F(SandboxTest, NoMeansNone) {
  const std::string status = in_child([this] {
    const Result<Sandbox> sandbox = enter_sandbox(options("no"));
    const bool is_none = !sandbox.value().has_seccomp && !sandbox.value().has_landlock &&
                         sandbox.value().trouble.empty();
    return is_none ? read_file("/proc/self/status") : "something is in force";
  });
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t0\n"));
}

// Returns what enter_sandbox() makes of a kernel that lacks a system call.
std::string without(long number, int error, const SandboxOptions& options) {
  return in_child([&] {
    take_away(number, error);
    const Result<Sandbox> entered = enter_sandbox(options);
    if (!entered.is_ok()) return entered.status().message();
    const Sandbox& sandbox = entered.value();
    return std::string(sandbox.has_seccomp ? "seccomp " : "") +
           (sandbox.has_landlock ? "landlock " : "") + sandbox.trouble;
  });
}

TEST_F(SandboxTest, AKernelWithoutLandlockHasToBeWanted) {
  NEEDS_SECCOMP();
  EXPECT_EQ(without(SYS_landlock_create_ruleset, ENOSYS, options()),
            "seccomp the kernel has no Landlock, which came with Linux 5.13");
  EXPECT_THAT(without(SYS_landlock_create_ruleset, EOPNOTSUPP, options()),
              HasSubstr("the kernel has Landlock, and was started without it"));
  EXPECT_THAT(without(SYS_landlock_create_ruleset, EPERM, options()),
              HasSubstr("as by the seccomp profile of a container"));
  const std::string refusal = without(SYS_landlock_create_ruleset, ENOSYS, options("yes"));
  for (const char* part : {"--sandbox yes: the kernel has no Landlock", "lsm=landlock",
                           "--sandbox auto, which does with what there is"}) {
    EXPECT_THAT(refusal, HasSubstr(part));
  }
}

TEST_F(SandboxTest, AKernelWithoutSeccompHasToBeWanted) {
  NEEDS_SECCOMP();
  NEEDS_LANDLOCK();
  EXPECT_EQ(without(SYS_seccomp, EINVAL, options()), "landlock the kernel has no seccomp filters");
  EXPECT_THAT(without(SYS_seccomp, EINVAL, options("yes")),
              HasSubstr("--sandbox yes: the kernel has no seccomp filters; "));
}

}  // namespace
}  // namespace rueda::security
