// ruedactl: asks a daemon what is going on.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

#include "daemon/ctl/format.h"
#include "rueda/v1/admin.grpc.pb.h"

namespace {

using namespace rueda;  // NOLINT: the whole program is this file

constexpr char kDefaultSocket[] = "/run/rueda/ruedad.sock";
constexpr int kUsageError = 2;
constexpr auto kTimeout = std::chrono::seconds(5);
// A daemon gives a probe up before that.
constexpr auto kProbeTimeout = std::chrono::seconds(660);

struct Arguments {
  std::string socket;
  std::string address;
  bool wants_json = false;
};

std::string grpc_target(const Arguments& arguments) {
  if (!arguments.address.empty()) return arguments.address;
  if (arguments.socket.front() == '@') return "unix-abstract:" + arguments.socket.substr(1);
  return "unix:" + arguments.socket;
}

int print_failure(const Arguments& arguments, const grpc::Status& status) {
  const std::string where = arguments.address.empty() ? arguments.socket : arguments.address;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    std::fprintf(stderr,
                 "ruedactl: no daemon answers at %s (%s): name another with --socket or "
                 "--address, or start one with ruedad\n",
                 where.c_str(), status.error_message().c_str());
  } else {
    std::fprintf(stderr, "ruedactl: the daemon at %s refused: %s\n", where.c_str(),
                 status.error_message().c_str());
  }
  return 1;
}

std::unique_ptr<v1::Admin::Stub> connect(const Arguments& arguments) {
  grpc::ChannelArguments options;
  options.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return v1::Admin::NewStub(grpc::CreateCustomChannel(grpc_target(arguments),
                                                      grpc::InsecureChannelCredentials(), options));
}

template <class Reply>
bool print(const Arguments& arguments, const Reply& reply, std::string (*table)(const Reply&)) {
  const std::string text = arguments.wants_json ? ctl::to_json(reply).dump(2) + "\n" : table(reply);
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0;
}

// One unary call, printed.
template <class Request, class Reply>
int ask(const Arguments& arguments,
        grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
        std::string (*table)(const Reply&)) {
  const auto stub = connect(arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  Reply reply;
  const grpc::Status status = ((*stub).*method)(&context, Request(), &reply);
  if (!status.ok()) return print_failure(arguments, status);
  return print(arguments, reply, table) ? 0 : 1;
}

// Fails when a pair of nodes does not reach each other.
int probe(const Arguments& arguments) {
  const auto stub = connect(arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kProbeTimeout);
  const auto stream = stub->Probe(&context);
  stream->Write(v1::ProbeRequest());
  v1::ProbeReply reply;
  const bool has_reply = stream->Read(&reply);
  const grpc::Status status = stream->Finish();
  if (!status.ok() || !has_reply) return print_failure(arguments, status);
  const bool is_printed = print(arguments, reply, &ctl::probe_table);
  return is_printed && reply.unreachable().empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  CLI::App app{"Asks rueda's daemon what is going on.", "ruedactl"};
  app.set_version_flag("--version", std::string("ruedactl ") + RUEDA_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  Arguments arguments;
  CLI::Option* const socket =
      app.add_option("--socket", arguments.socket,
                     std::string("The daemon's socket, a path or @name (default: $RUEDA_SOCKET, "
                                 "then ") +
                         kDefaultSocket + ")");
  app.add_option("--address", arguments.address, "HOST:PORT of the daemon's control service")
      ->excludes(socket)
      ->check([](const std::string& text) {
        return text.find(':') == std::string::npos ? "it is not HOST:PORT" : std::string();
      });
  app.add_flag("--json", arguments.wants_json, "Print JSON with the field names of admin.proto");
  const CLI::App* const status = app.add_subcommand("status", "The daemon itself");
  CLI::App* const jobs = app.add_subcommand("jobs", "The jobs it serves");
  bool wants_plan = false;
  jobs->add_flag("--plan", wants_plan, "The batches of their locked schedules");
  const CLI::App* const stalls =
      app.add_subcommand("stalls", "Tensors that some ranks wait for and others do not submit");
  const CLI::App* const probes = app.add_subcommand(
      "probe",
      "Measures the bandwidths between its --nodes, which order the rings of jobs to come");
  app.add_subcommand("peers", "The other daemons that it knows");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  const char* const socket_variable = std::getenv("RUEDA_SOCKET");
  if (arguments.socket.empty() && socket_variable != nullptr) arguments.socket = socket_variable;
  if (arguments.socket.empty()) arguments.socket = kDefaultSocket;
  if (*status) return ask(arguments, &v1::Admin::Stub::GetStatus, &ctl::status_table);
  if (*jobs && wants_plan) return ask(arguments, &v1::Admin::Stub::ListPlans, &ctl::plans_table);
  if (*jobs) return ask(arguments, &v1::Admin::Stub::ListJobs, &ctl::jobs_table);
  if (*stalls) return ask(arguments, &v1::Admin::Stub::ListStalls, &ctl::stalls_table);
  if (*probes) return probe(arguments);
  return ask(arguments, &v1::Admin::Stub::ListPeers, &ctl::peers_table);
}
