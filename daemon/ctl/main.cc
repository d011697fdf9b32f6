// ruedactl: asks a daemon for its state, ends jobs, and reads timelines.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

#include "daemon/base/os/daemon_socket.h"
#include "daemon/base/os/own_file.h"
#include "daemon/ctl/certs.h"
#include "daemon/ctl/doctor.h"
#include "daemon/ctl/format.h"
#include "daemon/ctl/timeline.h"
#include "daemon/local/client.h"
#include "daemon/rpc/credentials.h"
#include "daemon/security/certificates/tls_folder.h"
#include "rueda/v1/admin.grpc.pb.h"

namespace {

using namespace rueda;  // NOLINT: the whole program is this file

constexpr char kDefaultSocket[] = "/run/rueda/ruedad.sock";
constexpr int kUsageError = 2;
constexpr auto kTimeout = std::chrono::seconds(5);
// A daemon ends a probe before this time.
constexpr auto kProbeTimeout = std::chrono::seconds(660);

struct Arguments {
  std::string socket;
  std::string address;
  std::string tls_dir;
  bool wants_json = false;
};

int print_failure(const Arguments& arguments, const CallStatus& status) {
  const std::string where = arguments.address.empty() ? arguments.socket : arguments.address;
  if (status.code == CallCode::kDeadlineExceeded) {
    std::fprintf(stderr,
                 "ruedactl: the daemon at %s does not answer: it is not to be reached, or stands "
                 "still; see its log, and whether whoever reads that has stopped\n",
                 where.c_str());
  } else if (status.code == CallCode::kUnavailable) {
    std::fprintf(stderr,
                 "ruedactl: no daemon answers at %s (%s): name another with --socket or "
                 "--address, or start one with ruedad\n",
                 where.c_str(), status.text.c_str());
  } else {
    std::fprintf(stderr, "ruedactl: the daemon at %s refused: %s\n", where.c_str(),
                 status.text.c_str());
  }
  return 1;
}

int print_error(const std::string& text) {
  std::fprintf(stderr, "ruedactl: %s\n", text.c_str());
  return 1;
}

Result<std::shared_ptr<rpc::Credentials>> credentials_of(const Arguments& arguments) {
  if (arguments.tls_dir.empty()) {
    return std::make_shared<rpc::Credentials>(security::Caller::Kind::kNobody);
  }
  Result<std::shared_ptr<security::TlsFolder>> folder =
      security::TlsFolder::open(arguments.tls_dir);
  if (!folder.is_ok()) return folder.status();
  return std::make_shared<rpc::Credentials>(std::move(folder).value());
}

// A method, as it is called over the network and at a socket.
template <class Request, class Reply>
struct Method {
  local::Method at_socket;
  grpc::Status (v1::Admin::Stub::*over_network)(grpc::ClientContext*, const Request&, Reply*);
};

CallStatus from_grpc(const grpc::Status& status) {
  return {static_cast<CallCode>(status.error_code()), status.error_message()};
}

// A daemon that is asked, at its socket or over the network: one of the two is there.
struct Daemon {
  UniqueFd socket;
  std::unique_ptr<v1::Admin::Stub> stub;

  bool is_there() const { return socket.is_open() || stub; }
  template <class Request, class Reply>
  CallStatus ask(const Method<Request, Reply>& method, const Request& request, Reply& reply) {
    if (!stub) return local::ask(socket.get(), method.at_socket, request, reply, kTimeout);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    return from_grpc((*stub.*method.over_network)(&context, request, &reply));
  }
  CallStatus probe(v1::ProbeReply& reply) {
    const v1::ProbeRequest request;
    if (!stub) {
      return local::ask(socket.get(), local::Method::kProbe, request, reply, kProbeTimeout);
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kProbeTimeout);
    const auto stream = stub->Probe(&context);
    stream->Write(request);
    const bool has_reply = stream->Read(&reply);
    CallStatus status = from_grpc(stream->Finish());
    if (!status.is_ok() || has_reply) return status;
    return {CallCode::kUnavailable, "it has ended the call without an answer"};
  }
};

// Connects to the daemon, whose user is looked at if that is at a socket. Prints an error, and
// returns one that is not there then.
Daemon connect(const Arguments& arguments) {
  Daemon daemon;
  if (!arguments.address.empty()) {
    grpc::ChannelArguments options;
    options.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto credentials = credentials_of(arguments);
    if (!credentials.is_ok()) {
      print_error("--tls-dir: " + credentials.status().message());
      return daemon;
    }
    daemon.stub = v1::Admin::NewStub(
        grpc::CreateCustomChannel(arguments.address, credentials.value()->channel(), options));
    return daemon;
  }
  Result<UniqueFd> socket =
      connect_to_daemon(arguments.socket, std::chrono::milliseconds(kTimeout).count());
  switch (socket.status().code()) {
    case Code::kOk: daemon.socket = std::move(socket).value(); break;
    case Code::kTimeout: print_failure(arguments, {CallCode::kDeadlineExceeded, ""}); break;
    case Code::kNotFound:
    case Code::kUnavailable:
      print_failure(arguments, {CallCode::kUnavailable, socket.status().message()});
      break;
    default: print_error(socket.status().message());
  }
  return daemon;
}

int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

template <class Reply>
int print(const Arguments& arguments, const Reply& reply, std::string (*table)(const Reply&)) {
  return print(arguments.wants_json ? ctl::to_json(reply).dump(2) + "\n" : table(reply));
}

const Method<v1::GetStatusRequest, v1::GetStatusReply> kGetStatus{local::Method::kGetStatus,
                                                                  &v1::Admin::Stub::GetStatus};
const Method<v1::ListJobsRequest, v1::ListJobsReply> kListJobs{local::Method::kListJobs,
                                                               &v1::Admin::Stub::ListJobs};
const Method<v1::ListPlansRequest, v1::ListPlansReply> kListPlans{local::Method::kListPlans,
                                                                  &v1::Admin::Stub::ListPlans};
const Method<v1::ListPeersRequest, v1::ListPeersReply> kListPeers{local::Method::kListPeers,
                                                                  &v1::Admin::Stub::ListPeers};
const Method<v1::ListStallsRequest, v1::ListStallsReply> kListStalls{local::Method::kListStalls,
                                                                     &v1::Admin::Stub::ListStalls};
const Method<v1::EndJobRequest, v1::EndJobReply> kEndJob{local::Method::kEndJob,
                                                         &v1::Admin::Stub::EndJob};
const Method<v1::RequestTimelineRequest, v1::RequestTimelineReply> kRequestTimeline{
    local::Method::kRequestTimeline, &v1::Admin::Stub::RequestTimeline};

// Makes one unary call, and prints an error. Returns false on an error.
template <class Request, class Reply>
bool fetch(const Arguments& arguments, Daemon& daemon, const Method<Request, Reply>& method,
           const Request& request, Reply& reply) {
  const CallStatus status = daemon.ask(method, request, reply);
  if (!status.is_ok()) print_failure(arguments, status);
  return status.is_ok();
}

// Makes one unary call, and prints its reply. Returns the exit code.
template <class Request, class Reply>
int ask(const Arguments& arguments, const Method<Request, Reply>& method,
        std::string (*table)(const Reply&), const Request& request = {}) {
  Reply reply;
  Daemon daemon = connect(arguments);
  if (!daemon.is_there() || !fetch(arguments, daemon, method, request, reply)) return 1;
  return print(arguments, reply, table);
}

// Prints the findings. The exit code is not 0 if there are any.
int examine(const Arguments& arguments) {
  Daemon daemon = connect(arguments);
  if (!daemon.is_there()) return 1;
  v1::GetStatusReply status;
  v1::ListJobsReply jobs;
  v1::ListPeersReply peers;
  v1::ListStallsReply stalls;
  const bool has_all = fetch(arguments, daemon, kGetStatus, {}, status) &&
                       fetch(arguments, daemon, kListJobs, {}, jobs) &&
                       fetch(arguments, daemon, kListPeers, {}, peers) &&
                       fetch(arguments, daemon, kListStalls, {}, stalls);
  if (!has_all) return 1;
  const std::vector<ctl::Finding> findings = ctl::diagnose(status, jobs, peers, stalls);
  const int printed = print(arguments.wants_json ? ctl::findings_json(findings).dump(2) + "\n"
                                                 : ctl::findings_text(findings));
  return findings.empty() ? printed : 1;
}

// Runs a probe. The exit code is not 0 if some pair of nodes does not reach each other.
int probe(const Arguments& arguments) {
  Daemon daemon = connect(arguments);
  if (!daemon.is_there()) return 1;
  v1::ProbeReply reply;
  const CallStatus status = daemon.probe(reply);
  if (!status.is_ok()) return print_failure(arguments, status);
  const int printed = print(arguments, reply, &ctl::probe_table);
  return reply.unreachable().empty() ? printed : 1;
}

// --- Timelines

struct TraceArguments {
  std::string file;
  std::string job;
  bool wants_chunks = false;
  std::string picture;
  int steps = 3;
};

struct TraceCommands {
  CLI::App* start = nullptr;
  CLI::App* stop = nullptr;
  CLI::App* summary = nullptr;
  CLI::App* plot = nullptr;
};

TraceCommands add_trace_commands(CLI::App& app, TraceArguments& arguments) {
  CLI::App* const trace = app.add_subcommand("trace", "Timelines of jobs");
  trace->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, bool has_file) {
    CLI::App* const command = trace->add_subcommand(name, about);
    command->fallthrough();
    if (has_file) command->add_option("file", arguments.file, "The timeline's file")->required();
    return command;
  };
  TraceCommands commands;
  commands.start = add("start", "Begin one: the launcher of node 0 writes the file", true);
  commands.start->add_flag("--chunks", arguments.wants_chunks,
                           "With a mark for each chunk that comes");
  commands.stop = add("stop", "End it; its file is whole a moment later", false);
  for (CLI::App* const command : {commands.start, commands.stop}) {
    command->add_option("--job", arguments.job, "Its id (default: the only one)");
  }
  commands.summary = add("summary", "Where the time of its steps went, and the slowest rank", true);
  commands.plot = add("plot", "Draw its last steps as SVG", true);
  commands.plot->add_option("--output", arguments.picture, "The picture (default: FILE.svg)");
  commands.plot->add_option("--steps", arguments.steps, "How many steps")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  trace->fallthrough();
  return commands;
}

int request_timeline(const Arguments& arguments, const TraceArguments& trace, bool begins) {
  v1::RequestTimelineRequest request;
  request.set_job_id(trace.job);
  v1::TimelineRequest& timeline = *request.mutable_timeline();
  timeline.set_begins(begins);
  if (begins) timeline.set_path(std::filesystem::absolute(trace.file).string());
  timeline.set_chunks(trace.wants_chunks);
  return ask(arguments, kRequestTimeline, &ctl::timeline_text, request);
}

int summarise(const Arguments& arguments, const TraceArguments& trace) {
  const Result<ctl::Timeline> timeline = ctl::Timeline::read(trace.file);
  if (!timeline.is_ok()) return print_error(timeline.status().message());
  const auto ranks = ctl::summarise(timeline.value());
  return print(arguments.wants_json ? ctl::summary_json(timeline.value(), ranks).dump(2) + "\n"
                                    : ctl::summary_table(timeline.value(), ranks));
}

int plot(const TraceArguments& trace) {
  const Result<ctl::Timeline> timeline = ctl::Timeline::read(trace.file);
  if (!timeline.is_ok()) return print_error(timeline.status().message());
  const Result<std::string> picture = ctl::plot_svg(timeline.value(), trace.steps);
  if (!picture.is_ok()) return print_error(picture.status().message());
  const std::string path = trace.picture.empty() ? trace.file + ".svg" : trace.picture;
  const Status written = write_own_file(path, picture.value());
  if (!written.is_ok()) return print_error("cannot write " + path + ": " + written.message());
  return print("the picture is in " + path + "\n");
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
  app.add_option("--tls-dir", arguments.tls_dir,
                 "Folder with the certificate to show at --address (default: $RUEDA_TLS_DIR)")
      ->envname("RUEDA_TLS_DIR");
  app.add_flag("--json", arguments.wants_json, "Print JSON with the field names of admin.proto");
  const CLI::App* const status = app.add_subcommand("status", "The daemon itself");
  CLI::App* const jobs = app.add_subcommand("jobs", "The jobs it serves");
  bool wants_plan = false;
  jobs->add_flag("--plan", wants_plan, "The batches of their locked schedules");
  const CLI::App* const stalls =
      app.add_subcommand("stalls", "Tensors that some ranks wait for and others do not submit");
  const CLI::App* const doctor = app.add_subcommand(
      "doctor", "What is wrong, or could be better, and what to do; fails if there is anything");
  const CLI::App* const probes = app.add_subcommand(
      "probe",
      "Measures the bandwidths between its --nodes, which order the rings of jobs to come");
  v1::EndJobRequest ended;
  CLI::App* const end = app.add_subcommand("end", "Ends a job on all its nodes, for good");
  end->add_option("job", *ended.mutable_job_id(), "Its id")->required();
  end->add_option("--reason", *ended.mutable_reason(), "Why, for those whose job it is");
  TraceArguments trace;
  const TraceCommands traces = add_trace_commands(app, trace);
  app.add_subcommand("peers", "The other daemons that it knows");
  const ctl::CertsCommands certs(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  if (certs.is_given()) {
    const Result<std::string> done = certs.run();
    return done.is_ok() ? print(done.value()) : print_error(done.status().message());
  }
  const char* const socket_variable = std::getenv("RUEDA_SOCKET");
  if (arguments.socket.empty() && socket_variable != nullptr) arguments.socket = socket_variable;
  if (arguments.socket.empty()) arguments.socket = kDefaultSocket;
  if (*status) return ask(arguments, kGetStatus, &ctl::status_table);
  if (*jobs && wants_plan) return ask(arguments, kListPlans, &ctl::plans_table);
  if (*jobs) return ask(arguments, kListJobs, &ctl::jobs_table);
  if (*stalls) return ask(arguments, kListStalls, &ctl::stalls_table);
  if (*doctor) return examine(arguments);
  if (*probes) return probe(arguments);
  if (*end) return ask(arguments, kEndJob, &ctl::end_text, ended);
  if (*traces.start || *traces.stop) {
    return request_timeline(arguments, trace, static_cast<bool>(*traces.start));
  }
  if (*traces.summary) return summarise(arguments, trace);
  if (*traces.plot) return plot(trace);
  return ask(arguments, kListPeers, &ctl::peers_table);
}
