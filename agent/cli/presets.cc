#include "agent/cli/presets.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace rueda::agent {

namespace {

struct Preset {
  const char* name;
  std::vector<std::string> flags;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"baidu",
       {"--algorithm=ring", "--reducer=device", "--coordination=negotiate", "--fusion-threshold=0",
        "--transport=tcp"}},
      {"horovod",
       {"--algorithm=ring", "--reducer=device", "--coordination=cached", "--fusion-threshold=64MiB",
        "--transport=tcp"}},
      {"horovod-nccl",
       {"--algorithm=ring", "--reducer=node", "--coordination=cached", "--fusion-threshold=64MiB",
        "--inter-node=nccl"}},
      {"grpc-ps",
       {"--algorithm=central", "--reducer=node", "--coordination=negotiate", "--fusion-threshold=0",
        "--transport=grpc"}},
      {"grpc-mpi",
       {"--algorithm=central", "--reducer=node", "--coordination=negotiate", "--fusion-threshold=0",
        "--transport=tcp"}},
      {"grpc-verbs",
       {"--algorithm=central", "--reducer=node", "--coordination=negotiate", "--fusion-threshold=0",
        "--transport=rdma"}},
      {"mpi-opt",
       {"--algorithm=halving-doubling", "--reducer=node", "--coordination=cached",
        "--fusion-threshold=64MiB"}},
      {"cambridge-1step",
       {"--algorithm=ring", "--reducer=device", "--coordination=locked", "--fusion-threshold=64MiB",
        "--transport=tcp"}},
      {"cambridge-2step",
       {"--algorithm=ring", "--reducer=node", "--coordination=locked", "--fusion-threshold=64MiB",
        "--transport=tcp"}},
      // These are the defaults of a daemon that was given none.
      {"rueda", {"--reducer=node", "--coordination=locked", "--fusion-threshold=64MiB"}},
  };
  return all;
}

// Returns "--flag" of "--flag=value".
std::string name_of(const std::string& word) { return word.substr(0, word.find('=')); }

}  // namespace

Result<std::vector<std::string>> preset_flags(const std::string& name) {
  std::string names;
  for (const Preset& preset : presets()) {
    if (name == preset.name) return preset.flags;
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  return Status(Code::kInvalidArgument, "there is no preset \"" + name + "\"; there are " + names);
}

Status add_preset(std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--preset=";
  const auto named = std::find_if(words.rbegin(), words.rend(),
                                  [&](const std::string& word) { return word.starts_with(kFlag); });
  if (named == words.rend()) return Status::ok();
  Result<std::vector<std::string>> flags = preset_flags(named->substr(kFlag.size()));
  if (!flags.is_ok()) return flags.status();
  const auto is_given = [&](const std::string& flag) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      // --deterministic fuses nothing.
      return name_of(word) == name_of(flag) ||
             (name_of(word) == "--deterministic" && name_of(flag) == "--fusion-threshold");
    });
  };
  std::vector<std::string> all;
  for (std::string& flag : flags.value()) {
    if (!is_given(flag)) all.push_back(std::move(flag));
  }
  words.insert(words.begin(), all.begin(), all.end());
  return Status::ok();
}

}  // namespace rueda::agent
