#include "agent/cli/options.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/cli/presets.h"

namespace rueda::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Words = std::vector<std::string>;

Options parsed(const Words& words, const std::map<std::string, std::string>& environment = {}) {
  const ParseOutcome outcome = parse_options(words, environment);
  EXPECT_TRUE(outcome.options.has_value()) << outcome.text;
  return outcome.options.value_or(Options{});
}

std::string error_of(const Words& words,
                     const std::map<std::string, std::string>& environment = {}) {
  const ParseOutcome outcome = parse_options(words, environment);
  EXPECT_FALSE(outcome.options.has_value());
  EXPECT_TRUE(outcome.is_error);
  EXPECT_EQ(outcome.exit_code, 2);
  return outcome.text;
}

TEST(Options, TakesEverySpellingOfTheNumberOfRanks) {
  for (const Words& words : {Words{"-np", "4"}, Words{"--np", "4"}, Words{"-np=4"}, Words{"--np=4"},
                             Words{"--nproc-per-node", "4"}, Words{"--nproc_per_node=4"}}) {
    Words all = words;
    all.push_back("prog");
    EXPECT_EQ(parsed(all).ranks, 4) << words[0];
  }
  EXPECT_EQ(parsed({"prog"}).ranks, 1);
}

TEST(Options, LeavesTheProgramItsFlags) {
  EXPECT_THAT(parsed({"-np", "2", "prog", "-np", "7", "--verbose", "--", "x"}).command,
              ElementsAre("prog", "-np", "7", "--verbose", "--", "x"));
  EXPECT_THAT(parsed({"-np", "2", "--", "--odd-name", "--socket"}).command,
              ElementsAre("--odd-name", "--socket"));
  EXPECT_FALSE(parsed({"prog", "--verbose"}).is_verbose);
}

TEST(Options, ReadsAllOthers) {
  const Options options = parsed({"--socket", "@s", "--ruedad", "/x/ruedad", "--daemon-arg",
                                  "--a=1", "--daemon-arg=--b", "--start-timeout", "1.5", "--grace",
                                  "0.25", "--no-prefix", "--verbose", "--log-level", "debug", "p"});
  EXPECT_EQ(options.socket, "@s");
  EXPECT_EQ(options.ruedad, "/x/ruedad");
  EXPECT_THAT(options.daemon_args, ElementsAre("--a=1", "--b"));
  EXPECT_EQ(options.start_timeout_ms, 1500);
  EXPECT_EQ(options.grace_ms, 250);
  EXPECT_FALSE(options.has_prefix);
  EXPECT_TRUE(options.is_verbose);
  EXPECT_EQ(options.log_level, "debug");
  EXPECT_EQ(options.nnodes, 1);
}

TEST(Options, TakesHorovodrunsHosts) {
  EXPECT_EQ(parsed({"-np", "3", "-H", "localhost:4", "p"}).ranks, 3);
  EXPECT_EQ(parsed({"-H", "127.0.0.1:4", "p"}).ranks, 4);
  EXPECT_EQ(parsed({"-np", "2", "--hosts=localhost:2,other:2", "p"}).ranks, 2) << "other gets none";
  const std::string error = error_of({"-np", "6", "-H", "a:4,b:4", "p"});
  EXPECT_THAT(error, HasSubstr("on a: ruedarun -np 4 --nnodes 2 --node-rank 0 --rdzv-endpoint a:"));
  EXPECT_THAT(error, HasSubstr("on b: ruedarun -np 2 --nnodes 2 --node-rank 1 --rdzv-endpoint a:"));
  EXPECT_THAT(error_of({"-H", "other:2", "p"}), HasSubstr("on other: ruedarun -np 2 ..."));
  EXPECT_THAT(error_of({"-np", "5", "-H", "localhost:4", "p"}), HasSubstr("more than the 4 ranks"));
  EXPECT_THAT(error_of({"-H", "a:x", "p"}), HasSubstr("-H has \"a:x\""));
  EXPECT_THAT(error_of({"-H", "a:4", "--virtual-nodes", "2", "-np", "4", "p"}),
              HasSubstr("cannot go with it"));
}

TEST(Options, TakesHorovodrunsTimeline) {
  EXPECT_EQ(parsed({"--timeline-filename", "/t.json", "p"}).timeline, "/t.json");
  EXPECT_EQ(parsed({"--timeline-filename", "t.json", "p"}).timeline,
            (std::filesystem::current_path() / "t.json").string());
}

TEST(Options, ChecksForFiniteValuesWhereItIsTold) {
  const auto checks = [](std::vector<std::string> arguments, const std::string& variable) {
    arguments.push_back("p");
    return parse_options(arguments, {{"RUEDA_CHECK_FINITE", variable}}).options->checks_finite;
  };
  EXPECT_FALSE(checks({}, ""));
  EXPECT_FALSE(checks({}, "0"));
  EXPECT_TRUE(checks({}, "1"));
  EXPECT_TRUE(checks({"--check-finite"}, ""));
}

TEST(Options, ForARankNothingIsStarted) {
  EXPECT_TRUE(parsed({"--for-rank", "--socket", "@s"}).is_for_rank);
  EXPECT_THAT(error_of({"--for-rank", "p"}), HasSubstr("--for-rank starts no program"));
}

TEST(Options, ReadsTorchrunsNodeFlags) {
  const Options options = parsed({"--nnodes", "2", "--node_rank=1", "--rdzv_endpoint", "h:29500",
                                  "--rdzv-id", "x", "--nproc-per-node", "3", "p"});
  EXPECT_EQ(options.nnodes, 2);
  EXPECT_EQ(options.node_rank, 1);
  EXPECT_EQ(options.rdzv_endpoint, "h:29500");
  EXPECT_EQ(options.rdzv_id, "x");
  EXPECT_EQ(options.ranks, 3);
}

TEST(Options, TakesTheSocketFromTheEnvironmentUnlessAFlagSaysOtherwise) {
  const std::map<std::string, std::string> environment{{"RUEDA_SOCKET", "/e.sock"}};
  EXPECT_EQ(parsed({"p"}, environment).socket, "/e.sock");
  EXPECT_EQ(parsed({"--socket", "@f", "p"}, environment).socket, "@f");
  EXPECT_EQ(parsed({"--virtual-nodes", "1", "p"}, environment).socket, "");
}

TEST(Options, ReadsHowTheJobAgreesOnTheOrder) {
  const AgreementSettings nothing = parsed({"p"}).agreement;
  EXPECT_EQ(nothing.coordination, "");
  EXPECT_EQ(nothing.fusion_threshold_bytes, std::nullopt);
  EXPECT_EQ(nothing.lock_after_steps, std::nullopt);
  EXPECT_EQ(nothing.cache_capacity, std::nullopt);
  EXPECT_EQ(nothing.algorithm, "");
  EXPECT_EQ(nothing.reducer, "");
  EXPECT_EQ(nothing.inter_node, "");
  EXPECT_FALSE(nothing.is_deterministic);
  const AgreementSettings all = parsed({"--coordination", "cached", "--fusion-threshold", "0",
                                        "--lock-after", "5", "--cache-capacity=64", "--algorithm",
                                        "ring", "--reducer", "device", "--inter-node", "nccl", "p"})
                                    .agreement;
  EXPECT_EQ(all.coordination, "cached");
  EXPECT_EQ(all.fusion_threshold_bytes, 0u);
  EXPECT_EQ(all.lock_after_steps, 5u);
  EXPECT_EQ(all.cache_capacity, 64u);
  EXPECT_EQ(all.algorithm, "ring");
  EXPECT_EQ(all.reducer, "device");
  EXPECT_EQ(all.inter_node, "nccl");
}

TEST(Options, TakesTheJobsAgreementFromTheEnvironmentUnlessAFlagSaysOtherwise) {
  const std::map<std::string, std::string> environment{{"RUEDA_COORDINATION", "locked"},
                                                       {"RUEDA_FUSION_THRESHOLD", "16MiB"},
                                                       {"RUEDA_LOCK_AFTER", "2"},
                                                       {"RUEDA_CACHE_CAPACITY", ""}};
  const AgreementSettings settings = parsed({"p"}, environment).agreement;
  EXPECT_EQ(settings.coordination, "locked");
  EXPECT_EQ(settings.fusion_threshold_bytes, 16u << 20);
  EXPECT_EQ(settings.lock_after_steps, 2u);
  EXPECT_EQ(settings.cache_capacity, std::nullopt);
  EXPECT_EQ(parsed({"--coordination=cached", "p"}, environment).agreement.coordination, "cached");
  EXPECT_EQ(parsed({"--lock-after", "9", "p"}, environment).agreement.lock_after_steps, 9u);
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_ALGORITHM", "central"}}).agreement.algorithm, "central");
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_REDUCER", "device"}}).agreement.reducer, "device");
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_INTER_NODE", "nccl"}}).agreement.inter_node, "nccl");
  EXPECT_TRUE(parsed({"p"}, {{"RUEDA_DETERMINISTIC", "1"}}).agreement.is_deterministic);
  EXPECT_FALSE(parsed({"p"}, {{"RUEDA_DETERMINISTIC", "0"}}).agreement.is_deterministic);
  EXPECT_THAT(error_of({"--deterministic", "--fusion-threshold", "1M", "p"}),
              HasSubstr("--fusion-threshold"));
  EXPECT_THAT(error_of({"p"}, {{"RUEDA_LOCK_AFTER", "0"}}), HasSubstr("--lock-after"));
  EXPECT_THAT(error_of({"--cache-capacity", "none", "p"}), HasSubstr("none"));
}

TEST(Options, ReadsTheCycle) {
  const AgreementSettings nothing = parsed({"p"}).agreement;
  EXPECT_EQ(nothing.cycle_time_ms, std::nullopt);
  EXPECT_EQ(nothing.sleep_agreed_every, std::nullopt);
  const std::map<std::string, std::string> environment{{"RUEDA_CYCLE_TIME", "2.5"},
                                                       {"RUEDA_SLEEP_AGREED_EVERY", "4"}};
  EXPECT_EQ(parsed({"p"}, environment).agreement.cycle_time_ms, 2.5);
  EXPECT_EQ(parsed({"p"}, environment).agreement.sleep_agreed_every, 4u);
  EXPECT_EQ(parsed({"--cycle-time-ms", "0.01", "p"}, environment).agreement.cycle_time_ms, 0.01);
  for (const char* value : {"0", "-1", "0.009", "1000.1", "soon", "nan"}) {
    EXPECT_THAT(error_of({"--cycle-time-ms", value, "p"}), HasSubstr("--cycle-time-ms")) << value;
  }
  EXPECT_THAT(error_of({"p"}, {{"RUEDA_SLEEP_AGREED_EVERY", "0"}}),
              HasSubstr("--sleep-agreed-every"));
}

TEST(Options, SecondsAreNumbers) {
  for (const char* flag :
       {"--start-timeout", "--grace", "--stall-check-seconds", "--stall-shutdown-seconds"}) {
    EXPECT_THAT(error_of({flag, "nan", "p"}), HasSubstr(flag));
  }
}

TEST(Options, ReadsWhatIsTunedAndReplayed) {
  const AgreementSettings nothing = parsed({"p"}).agreement;
  EXPECT_FALSE(nothing.autotunes);
  EXPECT_EQ(nothing.autotune_log + nothing.plan + nothing.record_plan, "");
  const Options tuned = parsed({"p"}, {{"RUEDA_AUTOTUNE", "1"}, {"RUEDA_AUTOTUNE_LOG", "/a.csv"}});
  EXPECT_TRUE(tuned.agreement.autotunes);
  EXPECT_EQ(tuned.agreement.autotune_log, "/a.csv");
  EXPECT_THAT(tuned.notes, testing::IsEmpty());
  EXPECT_FALSE(parsed({"p"}, {{"RUEDA_AUTOTUNE", "0"}}).agreement.autotunes);
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_PLAN", "/plan"}}).agreement.plan, "/plan");
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_PLAN_RECORD", "/plan"}}).agreement.record_plan, "/plan");
  EXPECT_EQ(parsed({"--record-plan", "plan", "p"}).agreement.record_plan.front(), '/');
}

TEST(Options, WhatIsFixedIsNotTuned) {
  for (const Options& options :
       {parsed({"--autotune", "p"}, {{"RUEDA_DETERMINISTIC", "1"}}),
        parsed({"--autotune", "--autotune-log=a.csv", "--plan", "/plan", "p"})}) {
    EXPECT_FALSE(options.agreement.autotunes);
    EXPECT_THAT(options.notes, testing::ElementsAre(HasSubstr("autotuning is off")));
  }
  EXPECT_THAT(parsed({"--autotune-log=a.csv", "p"}).notes,
              testing::ElementsAre(HasSubstr("give --autotune")));
  EXPECT_THAT(error_of({"--deterministic", "--plan=/plan", "p"}), HasSubstr("--plan cannot go"));
  EXPECT_EQ(parsed({"--plan=/p", "p"}, {{"RUEDA_DETERMINISTIC", "0"}}).agreement.plan, "/p");
}

TEST(Options, StallTimesComeFromFlagsThenTheEnvironmentThenTheDaemon) {
  EXPECT_EQ(parsed({"p"}).stall_check_ms, std::nullopt);
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_STALL_CHECK_TIME_SECONDS", ""}}).stall_check_ms, std::nullopt);
  const std::map<std::string, std::string> environment{{"RUEDA_STALL_CHECK_TIME_SECONDS", "2.5"},
                                                       {"RUEDA_STALL_SHUTDOWN_TIME_SECONDS", "0"}};
  EXPECT_EQ(parsed({"p"}, environment).stall_check_ms, 2500);
  EXPECT_EQ(parsed({"p"}, environment).stall_shutdown_ms, 0);
  const Options options =
      parsed({"--stall-check-seconds", "0", "--stall-shutdown-seconds=7", "p"}, environment);
  EXPECT_EQ(options.stall_check_ms, 0);
  EXPECT_EQ(options.stall_shutdown_ms, 7000);
}

TEST(Options, APresetIsASetOfFlagsAndWhatIsGivenWins) {
  const AgreementSettings plain = parsed({"--preset", "grpc-ps", "p"}).agreement;
  EXPECT_EQ(plain.algorithm, "central");
  EXPECT_EQ(plain.transport, "grpc");
  EXPECT_EQ(plain.fusion_threshold_bytes, 0u);
  EXPECT_EQ(plain.coordination, "negotiate");
  EXPECT_FALSE(plain.servers.has_value());
  const AgreementSettings other =
      parsed({"--transport=tcp", "--preset=grpc-ps", "--servers", "2", "p"},
             {{"RUEDA_COORDINATION", "locked"}, {"RUEDA_PRESET", "baidu"}})
          .agreement;
  EXPECT_EQ(other.algorithm, "central") << "the flag's preset, not the variable's";
  EXPECT_EQ(other.transport, "tcp");
  EXPECT_EQ(other.servers, 2u);
  EXPECT_EQ(other.coordination, "locked");
  EXPECT_EQ(parsed({"p"}, {{"RUEDA_PRESET", "mpi-opt"}}).agreement.algorithm, "halving-doubling");
  EXPECT_TRUE(parsed({"--preset=horovod", "--deterministic", "p"}).agreement.is_deterministic);
  EXPECT_THAT(error_of({"--preset", "byteps", "p"}), HasSubstr("there are baidu, horovod"));
}

TEST(Options, EveryPresetIsInTheHelp) {
  const std::string help = parse_options({"--help"}, {}).text;
  const std::string names = preset_flags("").status().message();
  for (size_t at = names.find("there are ") + 10; at < names.size();) {
    const size_t end = std::min(names.find(", ", at), names.size());
    EXPECT_TRUE(preset_flags(names.substr(at, end - at)).is_ok());
    EXPECT_THAT(help, HasSubstr(names.substr(at, end - at)));
    at = end + 2;
  }
}

TEST(Options, AWrongVariableIsNamed) {
  for (const char* text : {"soon", "-1", "1s", "86401"}) {
    const ParseOutcome outcome = parse_options({"p"}, {{"RUEDA_STALL_CHECK_TIME_SECONDS", text}});
    EXPECT_FALSE(outcome.options.has_value()) << text;
    EXPECT_THAT(outcome.text, HasSubstr("--stall-check-seconds"));
  }
}

TEST(Options, NamesWhatIsWrong) {
  EXPECT_THAT(error_of({}), HasSubstr("name the program"));
  EXPECT_THAT(error_of({"--bogus", "p"}), HasSubstr("--bogus"));
  EXPECT_THAT(error_of({"-np", "0", "p"}), HasSubstr("--np"));
  EXPECT_THAT(error_of({"-np"}), HasSubstr("--np"));
  EXPECT_THAT(error_of({"-np", "many", "p"}), HasSubstr("many"));
  EXPECT_THAT(error_of({"-np", "2", "--virtual-nodes", "3", "p"}), HasSubstr("3 virtual nodes"));
  EXPECT_THAT(error_of({"--virtual-nodes", "1", "--socket", "@s", "p"}), HasSubstr("--socket"));
  EXPECT_THAT(error_of({"--virtual-nodes", "1", "--nnodes", "2", "p"}), HasSubstr("--nnodes"));
  EXPECT_THAT(error_of({"--nnodes", "2", "--node-rank", "0", "p"}), HasSubstr("--rdzv-endpoint"));
  EXPECT_THAT(error_of({"--nnodes", "2", "--rdzv-endpoint", "h:1", "p"}), HasSubstr("--node-rank"));
  EXPECT_THAT(error_of({"--nnodes", "2", "--node-rank", "2", "--rdzv-endpoint", "h:1", "p"}),
              HasSubstr("--node-rank 2"));
  EXPECT_THAT(error_of({"--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "h", "p"}),
              HasSubstr("HOST:PORT"));
}

TEST(Options, HelpAndVersionAreNoErrors) {
  for (const char* flag : {"--help", "--version"}) {
    const ParseOutcome outcome = parse_options({flag}, {});
    EXPECT_FALSE(outcome.options.has_value());
    EXPECT_FALSE(outcome.is_error);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.text, HasSubstr("ruedarun"));
  }
}

}  // namespace
}  // namespace rueda::agent
