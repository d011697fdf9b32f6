#include "daemon/ctl/certs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/fd.h"
#include "daemon/base/os/groups.h"
#include "daemon/base/os/own_file.h"
#include "daemon/ctl/format.h"
#include "daemon/security/certificates/certificates.h"
#include "daemon/security/certificates/tls_folder.h"

namespace rueda::ctl {
namespace {

namespace fs = std::filesystem;
using security::CertificateFacts;
using security::Identity;
using security::KeyPair;

constexpr char kAuthorityKey[] = "ca.key";
constexpr char kIssued[] = "issued";
constexpr std::chrono::days kAuthorityLife{3650};

Status bad(const std::string& what) { return {Code::kInvalidArgument, what}; }

Status cannot(const std::string& what, const std::string& path) {
  return {Code::kPermission, "cannot " + what + " " + path + ": " + std::strerror(errno)};
}

// Writes a file that is not there yet, so that it is on the disk when this returns. Whoever is to
// read it gets to do so at the end.
Status write_new(const std::string& path, const std::string& text, mode_t mode,
                 std::optional<gid_t> group = {}) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return cannot("make", path);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return cannot("write", path);
  }
  if (group && ::fchown(file.get(), static_cast<uid_t>(-1), *group) != 0) {
    return cannot("give to the group", path);
  }
  if (::fchmod(file.get(), mode) != 0) return cannot("set the mode of", path);
  return ::fsync(file.get()) == 0 ? Status::ok() : cannot("write", path);
}

// Makes a folder; one that is there must belong to the caller or to root, and nobody else may write
// to it.
Status make_folder(std::string path, mode_t mode) {
  std::error_code error;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  fs::create_directories(fs::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), mode) == 0) return Status::ok();
  if (errno != EEXIST) return cannot("make the folder", path);
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return cannot("look at", path);
  const bool is_own = found.st_uid == ::geteuid() || found.st_uid == 0;
  if (S_ISDIR(found.st_mode) && is_own && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return Status::ok();
  }
  return bad(path + " is there, and no folder that only its owner, root or you, can write to");
}

// Makes a folder that is not there yet.
Status make_new_folder(const std::string& path, mode_t mode, std::optional<gid_t> group = {}) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (::mkdir(path.c_str(), 0700) != 0) return cannot("make the folder", path);
  if (group && ::chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return cannot("give to the group", path);
  }
  return ::chmod(path.c_str(), mode) == 0 ? Status::ok() : cannot("set the mode of", path);
}

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

Result<KeyPair> read_authority(const std::string& folder) {
  Result<std::string> certificate =
      security::read_pem_file(folder + '/' + security::kAuthorityFile);
  if (!certificate.is_ok()) {
    return bad(certificate.status().message() + "; ruedactl certs init makes an authority");
  }
  Result<std::string> key = security::read_pem_file(folder + '/' + kAuthorityKey);
  if (!key.is_ok()) return key.status();
  return KeyPair{std::move(certificate).value(), std::move(key).value()};
}

// Returns the list of revoked certificates; "" if there is none.
Result<std::string> read_revoked(const std::string& folder) {
  Result<std::string> read = security::read_pem_file(folder + '/' + security::kRevokedFile);
  return read.status().code() == Code::kNotFound ? std::string() : std::move(read);
}

std::string facts_text(const CertificateFacts& facts) {
  std::string text = to_uri(facts.identity) + "\n  serial " + facts.serial + ", from " +
                     day_text(facts.not_before.time_since_epoch().count()) + " until " +
                     day_text(facts.not_after.time_since_epoch().count()) + "\n";
  if (facts.hosts.empty()) return text;
  text += "  hosts";
  for (const std::string& host : facts.hosts) text += ' ' + host;
  return text + '\n';
}

std::string name_of(const CertificateFacts& facts) {
  return std::string(to_string(facts.identity.role)) + '-' + facts.identity.name + '-' +
         facts.serial + ".crt";
}

// Returns the certificates that an authority has issued.
Result<std::vector<CertificateFacts>> read_issued(const std::string& folder) {
  std::vector<CertificateFacts> found;
  std::error_code error;
  const std::string path = folder + '/' + kIssued;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const Result<std::string> pem = security::read_pem_file(entry->path().string());
    if (!pem.is_ok()) return pem.status();
    Result<CertificateFacts> facts = security::read_certificate(pem.value());
    if (!facts.is_ok()) return bad(entry->path().string() + ": " + facts.status().message());
    found.push_back(std::move(facts).value());
  }
  if (error) return bad(path + ": " + error.message());
  std::sort(found.begin(), found.end(), [](const CertificateFacts& a, const CertificateFacts& b) {
    return std::pair(to_uri(a.identity), a.not_before) <
           std::pair(to_uri(b.identity), b.not_before);
  });
  return found;
}

// Keeps others from changing an authority's folder as long as it is held.
UniqueFd lock(const std::string& folder) {
  UniqueFd file(::open((folder + '/' + security::kAuthorityFile).c_str(), O_RDONLY | O_CLOEXEC));
  if (file.is_open()) (void)::flock(file.get(), LOCK_EX);
  return file;
}

Status write_bundle(const std::string& folder, const security::TlsFiles& files,
                    std::optional<gid_t> group = {}) {
  const std::string base = folder + '/';
  Status done = write_new(base + security::kCertificateFile, files.pair.certificate, 0644);
  if (done.is_ok()) {
    done = write_new(base + security::kKeyFile, files.pair.key, group ? 0640 : 0600, group);
  }
  if (done.is_ok()) done = write_new(base + security::kAuthorityFile, files.authorities, 0644);
  if (done.is_ok() && !files.revoked_pem.empty()) {
    done = write_new(base + security::kRevokedFile, files.revoked_pem, 0644);
  }
  return done;
}

// Points a link at something else, in one step.
Status replace_link(const std::string& target, const std::string& link) {
  const std::string made = link + ".new";
  (void)::unlink(made.c_str());
  if (::symlink(target.c_str(), made.c_str()) != 0) return cannot("make", made);
  if (::rename(made.c_str(), link.c_str()) != 0) return cannot("replace", link);
  return Status::ok();
}

// Returns the group that is to read the key: the one that is asked for, or the one that could read
// what is there.
Result<std::optional<gid_t>> group_of(const CertsArguments& arguments) {
  if (!arguments.group.empty()) {
    const Result<gid_t> found = find_group(arguments.group);
    if (!found.is_ok()) return found.status();
    return std::optional(found.value());
  }
  struct stat found {};
  const std::string key = arguments.folder + '/' + security::kKeyFile;
  if (::stat(key.c_str(), &found) != 0 || (found.st_mode & S_IRGRP) == 0) {
    return std::optional<gid_t>();
  }
  return std::optional(found.st_gid);
}

// Has the files keep the list of revoked certificates that is installed, if it is newer than
// theirs.
Status keep_newer_list(const std::string& folder, security::TlsFiles& files) {
  Result<std::string> there = read_revoked(folder);
  if (!there.is_ok()) return there.status();
  const auto list = security::RevocationList::read(there.value(), files.authorities);
  if (!list.is_ok())
    return bad(folder + '/' + security::kRevokedFile + ": " + list.status().message());
  if (list.value().made() > files.revoked.made()) files.revoked_pem = std::move(there).value();
  return Status::ok();
}

// Removes a version that was installed before.
void remove_version(const std::string& folder, const std::string& name) {
  struct stat found {};
  const bool is_version = name.size() > 2 && name.starts_with("..") &&
                          name.find('/') == std::string::npos && name != "..data";
  const std::string path = folder + '/' + name;
  if (!is_version || ::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return;
  for (const char* file : {security::kCertificateFile, security::kKeyFile, security::kAuthorityFile,
                           security::kRevokedFile}) {
    (void)::unlink((path + '/' + file).c_str());
  }
  (void)::rmdir(path.c_str());
}

}  // namespace

Result<std::string> init_certs(const CertsArguments& arguments) {
  const std::string& folder = arguments.authority;
  if (is_there(folder + '/' + kAuthorityKey) || is_there(folder + '/' + security::kAuthorityFile)) {
    return bad(folder + " has an authority; a new one would make all its certificates worthless");
  }
  const Result<KeyPair> made = security::make_authority(arguments.trust_domain, kAuthorityLife);
  if (!made.is_ok()) return made.status();
  Status done = make_folder(folder, 0700);
  if (done.is_ok()) done = make_folder(folder + '/' + kIssued, 0700);
  if (done.is_ok()) done = write_new(folder + '/' + kAuthorityKey, made.value().key, 0600);
  if (done.is_ok()) {
    done = write_new(folder + '/' + security::kAuthorityFile, made.value().certificate, 0644);
  }
  if (!done.is_ok()) return done;
  return "the authority of " + arguments.trust_domain + " is in " + folder +
         ": keep its ca.key off the nodes\n";
}

Result<std::string> issue_certificate(const CertsArguments& arguments) {
  const Result<KeyPair> authority = read_authority(arguments.authority);
  if (!authority.is_ok()) return authority.status();
  Result<std::string> domain = security::trust_domain_of(authority.value().certificate);
  if (!domain.is_ok()) return domain.status();
  const UniqueFd held = lock(arguments.authority);
  Result<std::string> revoked = read_revoked(arguments.authority);
  if (!revoked.is_ok()) return revoked.status();
  const Identity identity{std::move(domain).value(), security::parse_role(arguments.role).value(),
                          arguments.name};
  const Result<KeyPair> made = security::issue(
      authority.value(), identity, {arguments.hosts, std::chrono::days(arguments.days)});
  if (!made.is_ok()) return made.status();
  const CertificateFacts facts = security::read_certificate(made.value().certificate).value();
  const std::string out = arguments.out.empty()
                              ? arguments.authority + "/bundles/" + arguments.role + '-' +
                                    arguments.name + '-' + facts.serial
                              : arguments.out;
  if (is_there(out)) return bad(out + " is there already: give another folder with --out");
  Status done = write_new(arguments.authority + '/' + kIssued + '/' + name_of(facts),
                          made.value().certificate, 0644);
  if (done.is_ok()) done = make_new_folder(out, 0700);
  security::TlsFiles files;
  files.pair = made.value();
  files.authorities = authority.value().certificate;
  files.revoked_pem = std::move(revoked).value();
  if (done.is_ok()) done = write_bundle(out, files);
  if (!done.is_ok()) return done;
  return facts_text(facts) + "  in " + out + "\n";
}

Result<std::string> install_bundle(const CertsArguments& arguments) {
  const auto read = security::read_tls_folder(arguments.bundle);
  if (!read.is_ok()) return read.status();
  security::TlsFiles files = *read.value();
  const std::string& folder = arguments.folder;
  const Result<std::optional<gid_t>> group = group_of(arguments);
  if (!group.is_ok()) return group.status();
  const mode_t mode = group.value() ? 0750 : 0700;
  std::error_code error;
  Status done =
      is_there(folder) ? make_folder(folder, mode) : make_new_folder(folder, mode, group.value());
  if (done.is_ok()) done = keep_newer_list(folder, files);
  if (!done.is_ok()) return done;
  // The layout is that of Kubernetes' volumes: a folder for each version, one link to it, and a
  // link for each file through that one, so that all files change at once.
  const std::string data = folder + "/..data";
  const fs::path before = fs::read_symlink(data, error);
  const std::string version = ".." + files.own.serial + '-' +
                              std::to_string(security::wall_now().time_since_epoch().count()) +
                              '-' + std::to_string(::getpid());
  done = make_new_folder(folder + '/' + version, mode, group.value());
  if (done.is_ok()) done = write_bundle(folder + '/' + version, files, group.value());
  if (done.is_ok()) done = replace_link(version, data);
  for (const char* name :
       {security::kCertificateFile, security::kKeyFile, security::kAuthorityFile}) {
    if (done.is_ok()) done = replace_link(std::string("..data/") + name, folder + '/' + name);
  }
  const std::string list = folder + '/' + security::kRevokedFile;
  if (done.is_ok() && !files.revoked_pem.empty()) {
    done = replace_link(std::string("..data/") + security::kRevokedFile, list);
  }
  if (!done.is_ok()) return done;
  if (before != version) remove_version(folder, before.string());
  return facts_text(files.own) + "  is in " + folder + "\n";
}

Result<std::string> install_list(const CertsArguments& arguments) {
  const Result<std::string> pem = security::read_pem_file(arguments.bundle);
  if (!pem.is_ok()) return pem.status();
  const auto files = security::read_tls_folder(arguments.folder);
  if (!files.is_ok()) return files.status();
  const auto list = security::RevocationList::read(pem.value(), files.value()->authorities);
  if (!list.is_ok()) return bad(arguments.bundle + ": " + list.status().message());
  if (list.value().size() == 0) {
    return bad(arguments.bundle + " revokes nothing of the authorities of " + arguments.folder);
  }
  if (list.value().made() < files.value()->revoked.made()) {
    return bad(arguments.folder + " has a newer list");
  }
  const std::string path = arguments.folder + '/' + security::kRevokedFile;
  const std::string made = path + ".new";
  (void)::unlink(made.c_str());
  if (Status written = write_new(made, pem.value(), 0644); !written.is_ok()) return written;
  if (::rename(made.c_str(), path.c_str()) != 0) return cannot("replace", path);
  return std::to_string(list.value().size()) + " certificates are revoked in " + arguments.folder +
         "\n";
}

Result<std::string> show_certificates(const CertsArguments& arguments) {
  const std::string& path = arguments.bundle;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const Result<std::string> pem = security::read_pem_file(path);
    if (!pem.is_ok()) return pem.status();
    const Result<CertificateFacts> facts = security::read_certificate(pem.value());
    return facts.is_ok() ? Result<std::string>(facts_text(facts.value())) : facts.status();
  }
  if (!is_there(path + '/' + kAuthorityKey)) {
    const auto files = security::read_tls_folder(path);
    if (!files.is_ok()) return files.status();
    return facts_text(files.value()->own) + "  " + std::to_string(files.value()->revoked.size()) +
           " certificates of its authority have been revoked\n";
  }
  const Result<KeyPair> authority = read_authority(path);
  if (!authority.is_ok()) return authority.status();
  const Result<std::string> domain = security::trust_domain_of(authority.value().certificate);
  if (!domain.is_ok()) return domain.status();
  const Result<std::string> revoked_pem = read_revoked(path);
  if (!revoked_pem.is_ok()) return revoked_pem.status();
  const auto revoked =
      security::RevocationList::read(revoked_pem.value(), authority.value().certificate);
  if (!revoked.is_ok()) return revoked.status();
  const Result<std::vector<CertificateFacts>> issued = read_issued(path);
  if (!issued.is_ok()) return issued.status();
  std::string text = "the authority of " + domain.value() + "\n";
  for (const CertificateFacts& facts : issued.value()) {
    text += facts_text(facts);
    if (revoked.value().has(facts.serial)) text += "  revoked\n";
  }
  return text;
}

Result<std::string> revoke_certificates(const CertsArguments& arguments) {
  const std::string& folder = arguments.authority;
  const Result<KeyPair> authority = read_authority(folder);
  if (!authority.is_ok()) return authority.status();
  const UniqueFd held = lock(folder);
  Result<std::string> list = read_revoked(folder);
  if (!list.is_ok()) return list.status();
  std::vector<std::string> serials;
  if (arguments.role == "serial") {
    serials.push_back(arguments.name);
  } else {
    const Result<std::vector<CertificateFacts>> issued = read_issued(folder);
    if (!issued.is_ok()) return issued.status();
    for (const CertificateFacts& facts : issued.value()) {
      const bool is_meant =
          to_string(facts.identity.role) == arguments.role && facts.identity.name == arguments.name;
      if (is_meant) serials.push_back(facts.serial);
    }
  }
  if (serials.empty()) {
    return bad("no certificate of " + folder + " is for " + arguments.role + ' ' + arguments.name +
               ": ruedactl certs show " + folder + " lists them");
  }
  std::string text;
  for (const std::string& serial : serials) {
    list = security::revoke(authority.value(), list.value(), serial);
    if (!list.is_ok()) return list.status();
    text += "revoked: " + arguments.role + ' ' + arguments.name + ", serial " + serial + "\n";
  }
  const std::string path = folder + '/' + security::kRevokedFile;
  if (Status written = replace_file(path, list.value()); !written.is_ok()) {
    return Status(written.code(), path + ": " + written.message());
  }
  return text + "give it to every daemon: ruedactl certs install-list " + path + " TLS_DIR\n";
}

CertsCommands::CertsCommands(CLI::App& app) {
  CLI::App* const certs = app.add_subcommand(
      "certs", "Certificates of daemons, operators and scrapers of metrics (docs/security.md)");
  certs->require_subcommand(1);
  const auto authority = [this](CLI::App* command) {
    command->add_option("--authority", arguments_.authority, "The authority's folder")->required();
  };
  const auto who = [this](CLI::App* command, const std::vector<std::string>& roles) {
    command->add_option("role", arguments_.role, "Whom it is for")
        ->required()
        ->check(CLI::IsMember(roles));
    command->add_option("name", arguments_.name, "A node's id, or a name")->required();
  };
  CLI::App* const init = add(*certs, "init", "Make an authority", &init_certs);
  init->add_option("folder", arguments_.authority, "The authority's folder, which is made")
      ->required();
  init->add_option("--trust-domain", arguments_.trust_domain,
                   "A name for all daemons and operators that trust each other, such as "
                   "cluster.example.org")
      ->required();
  CLI::App* const issue = add(*certs, "issue", "Issue a certificate", &issue_certificate);
  who(issue, {"node", "operator", "metrics"});
  authority(issue);
  issue->add_option("--host", arguments_.hosts,
                    "Name or IP address of the node, for clients of its HTTPS port that check it");
  issue->add_option("--days", arguments_.days, "How long it is good for")
      ->check(CLI::Range(1, 3650))
      ->capture_default_str();
  issue->add_option("--out", arguments_.out,
                    "The bundle, a folder that is made (default: in the authority's)");
  CLI::App* const install =
      add(*certs, "install", "Put a bundle where a daemon has its --tls-dir", &install_bundle);
  install->add_option("bundle", arguments_.bundle, "The bundle")->required();
  install->add_option("folder", arguments_.folder, "The folder of --tls-dir")->required();
  install->add_option("--group", arguments_.group, "Members of it may read the key, such as rueda");
  CLI::App* const list = add(*certs, "install-list",
                             "Put a list of revoked certificates where a daemon has its "
                             "--tls-dir",
                             &install_list);
  list->add_option("list", arguments_.bundle, "The authority's crl.pem")->required();
  list->add_option("folder", arguments_.folder, "The folder of --tls-dir")->required();
  CLI::App* const show = add(*certs, "show", "What is in a certificate, a bundle, or an authority",
                             &show_certificates);
  show->add_option("path", arguments_.bundle, "The file or folder")->required();
  CLI::App* const revoke =
      add(*certs, "revoke", "Make certificates worthless", &revoke_certificates);
  who(revoke, {"node", "operator", "metrics", "serial"});
  authority(revoke);
}

CLI::App* CertsCommands::add(CLI::App& certs, const char* name, const char* about, Run run) {
  CLI::App* const command = certs.add_subcommand(name, about);
  commands_.emplace_back(command, run);
  return command;
}

bool CertsCommands::is_given() const {
  return std::any_of(commands_.begin(), commands_.end(),
                     [](const auto& command) { return command.first->parsed(); });
}

Result<std::string> CertsCommands::run() const {
  const auto given = std::find_if(commands_.begin(), commands_.end(),
                                  [](const auto& command) { return command.first->parsed(); });
  return given->second(arguments_);
}

}  // namespace rueda::ctl
