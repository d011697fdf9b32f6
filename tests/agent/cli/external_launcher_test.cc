#include "agent/cli/external_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rueda::agent {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
                         {"PMIX_NAMESPACE", "1923022849"}};
const Variables kSlurm{
    {"SLURM_PROCID", "1"},  {"SLURM_STEP_NUM_TASKS", "4"},    {"SLURM_NTASKS", "9"},
    {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"},           {"SLURM_STEP_NUM_NODES", "2"},
    {"SLURM_NNODES", "1"},  {"SLURM_JOB_NODELIST", "x[1-9]"}, {"SLURM_STEP_NODELIST", "x[2-3]"}};

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_WORLD_SIZE", "8"},
                          {"MASTER_ADDR", "h"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "1"}};

ForeignLaunch launch_of(const Variables& variables) {
  const Result<ForeignLaunch> found = external_launcher(variables);
  EXPECT_TRUE(found.is_ok()) << found.status().message();
  return found.is_ok() ? found.value() : ForeignLaunch{};
}

TEST(ForeignLaunch, KnowsOpenMpi) {
  const ForeignLaunch launch = launch_of(kOpenMpi);
  EXPECT_EQ(launch.id, "1923022849");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 8);
  EXPECT_TRUE(launch.is_one_node);
  Variables spread = kOpenMpi;
  spread["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  EXPECT_FALSE(launch_of(spread).is_one_node);
}

TEST(ForeignLaunch, KnowsSlurmsStepNotItsAllocation) {
  const ForeignLaunch launch = launch_of(kSlurm);
  EXPECT_EQ(launch.id, "77.2");
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 4);
  EXPECT_FALSE(launch.is_one_node);
  EXPECT_EQ(launch.first_host, "x2");
  Variables batch_script = kSlurm;
  batch_script.erase("SLURM_STEP_ID");
  EXPECT_EQ(external_launcher(batch_script).status().code(), Code::kNotFound);
}

TEST(ForeignLaunch, AnMpirunInAnAllocationOfSlurmsIsTheLauncher) {
  Variables both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(launch_of(both).size, 8);
  EXPECT_EQ(launch_of(both).id, "1923022849");
}

TEST(ForeignLaunch, KnowsPmi) {
  const ForeignLaunch launch = launch_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(launch.size, 2);
  EXPECT_FALSE(launch.is_one_node);
  EXPECT_TRUE(
      launch_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}).is_one_node);
}

TEST(ForeignLaunch, KnowsTorchrunsRunAndItsRestarts) {
  const ForeignLaunch launch = launch_of(kTorchrun);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.size, 8);
  EXPECT_EQ(launch.id, "none.1.29500");
  EXPECT_EQ(launch.first_host, "h");
  EXPECT_TRUE(launch.is_one_node);
  Variables spread = kTorchrun;
  spread["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_FALSE(launch_of(spread).is_one_node);
  Variables named = kTorchrun;
  named["RUEDA_LAUNCH_ID"] = "abc";
  EXPECT_EQ(launch_of(named).id, "abc");
}

TEST(ForeignLaunch, KnowsAPlainRankOfTorchDistributed) {
  const ForeignLaunch launch = launch_of(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29501"}});
  EXPECT_EQ(launch.size, 2);
  EXPECT_EQ(launch.id, "..29501");
  EXPECT_EQ(external_launcher({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).status().code(),
            Code::kNotFound);
}

TEST(ForeignLaunch, TorchrunUnderSrunOrMpirunIsTheLauncher) {
  Variables both = kSlurm;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(launch_of(both).rank, 5);
  // A script may set RANK itself, from the variables of mpirun.
  Variables set_by_hand = kOpenMpi;
  set_by_hand.insert({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "h"}});
  EXPECT_EQ(launch_of(set_by_hand).rank, 3);
}

TEST(ForeignLaunch, NamesTheVariableThatIsWrong) {
  EXPECT_THAT(external_launcher({{"OMPI_COMM_WORLD_RANK", "0"}}).status().message(),
              HasSubstr("OMPI_COMM_WORLD_SIZE=\"\" is not a number from 1"));
  EXPECT_THAT(external_launcher({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).status().message(),
              HasSubstr("PMI_RANK=\"2\" is not a number from 0 to 1"));
  EXPECT_EQ(external_launcher({}).status().code(), Code::kNotFound);
}

TEST(ForeignLaunch, TheFirstOfAListOfNodes) {
  EXPECT_EQ(first_of_node_list("alpha"), "alpha");
  EXPECT_EQ(first_of_node_list("alpha,beta[1-2]"), "alpha");
  EXPECT_EQ(first_of_node_list("gpu[003-007,12],alpha"), "gpu003");
  EXPECT_EQ(first_of_node_list("gpu[7,9-11]"), "gpu7");
  EXPECT_EQ(first_of_node_list("r[1-2]-n,z"), "r1-n");
  EXPECT_EQ(first_of_node_list("broken[1-2"), "");
  EXPECT_EQ(first_of_node_list(""), "");
}

std::string place_of(const ForeignLaunch& launch, const Variables& variables = {}) {
  const Result<std::string> place = meeting_place(launch, variables, "/run/mine");
  return place.is_ok() ? place.value() : place.status().message();
}

TEST(ForeignLaunch, MeetsInAFolderOnOneNode) {
  EXPECT_EQ(place_of({"a/b:c", 0, 2, true, ""}), "unix:/run/mine/a-b-c");
}

TEST(ForeignLaunch, MeetsOnSlurmsFirstNode) {
  const std::string place = place_of({"77.2", 0, 2, false, "x2"});
  EXPECT_THAT(place, testing::MatchesRegex("x2:2(8[5-9]|9[0-4])[0-9][0-9]"));
  EXPECT_EQ(place, place_of({"77.2", 1, 2, false, "x2"}));
  EXPECT_NE(place, place_of({"77.3", 0, 2, false, "x2"}));
}

TEST(ForeignLaunch, MeetsWhereTheUserSays) {
  const ForeignLaunch launch{"1", 0, 2, true, "x2"};
  EXPECT_EQ(place_of(launch, {{"RUEDA_RDZV_ENDPOINT", "h:29400"}}), "h:29400");
  EXPECT_THAT(place_of(launch, {{"RUEDA_RDZV_ENDPOINT", "h"}}), HasSubstr("is not HOST:PORT"));
  EXPECT_THAT(place_of({"1", 0, 2, false, ""}), HasSubstr("set RUEDA_RDZV_ENDPOINT to HOST:PORT"));
}

}  // namespace
}  // namespace rueda::agent
