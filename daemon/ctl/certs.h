// ruedactl certs: an authority of one's own, and the certificates that it issues. The authority's
// folder stays with whoever runs the installation; each node gets a bundle.
//
//   AUTHORITY/ca.crt, ca.key, crl.pem (after the first revocation), issued/ROLE-NAME-SERIAL.crt
//   BUNDLE/tls.crt, tls.key, ca.crt, crl.pem (if there is one): what --tls-dir takes
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "daemon/base/status.h"

namespace rueda::ctl {

struct CertsArguments {
  std::string authority;  // The authority's folder.
  std::string trust_domain;
  std::string role;
  std::string name;
  std::vector<std::string> hosts;
  int days = 90;
  std::string out;     // The bundle that is written.
  std::string bundle;  // The bundle that is installed, or any folder or file that is shown.
  std::string folder;  // Where it is installed.
  std::string group;   // Whose members may read the installed key.
};

// Each returns what is to be printed.
Result<std::string> init_certs(const CertsArguments& arguments);
Result<std::string> issue_certificate(const CertsArguments& arguments);
Result<std::string> install_bundle(const CertsArguments& arguments);
// Puts the list `bundle` into a --tls-dir, unless that has a newer one.
Result<std::string> install_list(const CertsArguments& arguments);
Result<std::string> show_certificates(const CertsArguments& arguments);
// Revokes all certificates of a role and name, or the one with the serial number `name`.
Result<std::string> revoke_certificates(const CertsArguments& arguments);

// The subcommands of `ruedactl certs`.
class CertsCommands {
 public:
  explicit CertsCommands(CLI::App& app);
  // Returns true if one of them was given.
  bool is_given() const;
  // Runs the one that was given.
  Result<std::string> run() const;

 private:
  using Run = Result<std::string> (*)(const CertsArguments&);
  CLI::App* add(CLI::App& certs, const char* name, const char* about, Run run);

  CertsArguments arguments_;
  std::vector<std::pair<const CLI::App*, Run>> commands_;
};

}  // namespace rueda::ctl
