#include "daemon/security/sandbox/sandbox.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "daemon/security/certificates/tls_folder.h"
#include "daemon/security/sandbox/landlock.h"
#include "daemon/security/sandbox/seccomp.h"

namespace rueda::security {
namespace {

namespace fs = std::filesystem;

using Access = FileRule::Access;

// Sanitizers trace the process when it ends, and start programs when they report something.
#ifdef RUEDA_SANITIZED
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// A file in here may be replaced by another one at any time, and a rule for a file would hold for
// the one that is there now. So the rule is for its folder, unless that has everything.
void add_folder_of(const fs::path& file, std::vector<FileRule>& rules) {
  std::error_code error;
  const fs::path found = fs::canonical(file, error);
  if (error) return;
  const fs::path folder = found.parent_path();
  const bool is_top = folder == "/" || folder.parent_path() == "/";
  rules.push_back({is_top ? found.string() : folder.string(), Access::kRead});
}

// What glibc reads to look up a name: its settings are in /etc, or are links from there to where
// the system writes them, and what it loads for them is among the libraries.
void add_resolver(std::vector<FileRule>& rules) {
  for (const char* file : {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"}) {
    add_folder_of(file, rules);
  }
  rules.push_back({"/var/lib/sss", Access::kRead});  // SSSD's tables of users and groups.
}

// The certificates of --tls-dir are replaced while the daemon runs: behind a link in the folder, as
// a Kubernetes volume and `ruedactl certs install` do, or, if the folder is itself a link or its
// files are, behind that one.
void add_certificates(const fs::path& tls_dir, std::vector<FileRule>& rules) {
  std::error_code error;
  rules.push_back({tls_dir.string(), Access::kRead});
  if (fs::is_symlink(tls_dir, error)) add_folder_of(tls_dir, rules);
  for (const char* name : {kCertificateFile, kKeyFile, kAuthorityFile, kRevokedFile}) {
    add_folder_of(tls_dir / name, rules);
  }
}

std::vector<FileRule> rules_of(const SandboxOptions& options) {
  std::vector<FileRule> rules;
  // Libraries that are loaded at run time, their settings, time zones; /etc as a whole, because its
  // files are replaced. What is secret in there is readable for root alone, which no daemon is.
  for (const char* folder : {"/usr", "/lib", "/lib64", "/etc"}) {
    rules.push_back({folder, Access::kRead});
  }
  // Metrics, network interfaces, RDMA devices, and what glibc asks of its machine.
  for (const char* folder : {"/proc", "/sys"}) rules.push_back({folder, Access::kRead});
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}) {
    rules.push_back({device, Access::kDevice});
  }
  // RDMA devices are opened when the first channel needs one.
  rules.push_back({"/dev/infiniband", Access::kDevice});
  add_resolver(rules);
  if (!options.tls_dir.empty()) add_certificates(options.tls_dir, rules);
  for (const std::string& name : options.sockets) {
    if (name.starts_with('@')) continue;
    std::error_code error;
    const fs::path socket = fs::absolute(name, error);
    if (!error) rules.push_back({socket.parent_path().string(), Access::kSocket});
  }
  return rules;
}

Status required(const Status& missing) {
  return {missing.code(),
          "--sandbox yes: " + missing.message() +
              "; give it a kernel that has both seccomp and Landlock (lsm=landlock,... on its "
              "command line) and nothing that denies them, or --sandbox auto, which does with "
              "what there is"};
}

}  // namespace

Result<Sandbox> enter_sandbox(const SandboxOptions& options) {
  Sandbox sandbox;
  if (options.mode == "no") return sandbox;
  const bool is_required = options.mode == "yes";
  if (kIsSanitized) {
    if (is_required) return required({Code::kUnavailable, "this program has a sanitizer"});
    return sandbox;
  }
  // Landlock comes first, because the filter refuses its system calls.
  const Status files = enter_landlock(rules_of(options));
  sandbox.has_landlock = files.is_ok();
  if (!files.is_ok() && is_required) return required(files);
  const Status calls = enter_seccomp();
  sandbox.has_seccomp = calls.is_ok();
  if (!calls.is_ok() && is_required) return required(calls);
  for (const Status& part : {files, calls}) {
    if (part.is_ok()) continue;
    sandbox.trouble += (sandbox.trouble.empty() ? "" : "; ") + part.message();
  }
  return sandbox;
}

}  // namespace rueda::security
