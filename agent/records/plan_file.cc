#include "agent/records/plan_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <google/protobuf/util/json_util.h>

#include "daemon/base/os/own_file.h"
#include "rueda/v1/agent.pb.h"

namespace rueda::agent {
namespace {

// A plan has at most 3 MiB in a message; its JSON is larger, because it has the names of fields.
constexpr std::streamoff kMaxBytes = 64 << 20;

}  // namespace

Status load_plan(AgreementSettings& settings) {
  if (settings.plan.empty()) return Status::ok();
  const auto refuse = [&](const std::string& what) {
    return Status(Code::kInvalidArgument, "cannot replay the plan " + settings.plan + ": " + what);
  };
  std::ifstream file(settings.plan, std::ios::binary);
  if (!file) return refuse(std::strerror(errno));
  file.seekg(0, std::ios::end);
  const std::streamoff bytes = file.tellg();
  if (bytes > kMaxBytes) return refuse("it is too large to be one");
  std::string text(bytes > 0 ? static_cast<size_t>(bytes) : 0, '\0');
  file.seekg(0);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    return refuse("it cannot be read");
  }
  v1::RecordedPlan plan;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &plan);
  if (!parsed.ok() || plan.batches().empty()) {
    return refuse("it is not what --record-plan writes" +
                  (parsed.ok() ? "" : " (" + std::string(parsed.message()) + ")"));
  }
  settings.replayed_plan = plan.SerializeAsString();
  return Status::ok();
}

Status write_plan(const std::string& path, const v1::RecordedPlan& plan) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(plan, &text, options);
  if (!printed.ok()) return Status(Code::kInternal, "a plan that is no JSON");
  const Status written = replace_file(path, text);
  if (written.is_ok()) return written;
  return Status(Code::kInvalidArgument, "cannot write the plan " + path + ": " + written.message());
}

}  // namespace rueda::agent
