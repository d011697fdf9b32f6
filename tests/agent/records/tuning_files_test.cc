// Tests the files of autotuning and of recorded plans.

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/records/plan_file.h"
#include "agent/records/tuning_log.h"
#include "tests/support/temporary_folder.h"

namespace rueda::agent {
namespace {

using testing::HasSubstr;

class TuningFiles : public testing::Test {
 protected:
  std::string text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  Status load(AgreementSettings& settings) const {
    settings.plan = path_;
    return load_plan(settings);
  }

  const testing_support::TemporaryFolder kept_folder_;
  const std::string folder_ = kept_folder_.path();
  const std::string path_ = folder_ + "/file";
};

v1::TuningLine line_of(const std::string& phase, const std::string& verdict) {
  v1::TuningLine line;
  line.set_step(28);
  line.set_phase(phase);
  line.set_fusion_bytes(1 << 20);
  line.mutable_data()->set_cutover_log2(-2);
  line.set_step_ms(1.25);
  line.set_verdict(verdict);
  return line;
}

TEST_F(TuningFiles, TheLogHasEachLineAtOnce) {
  auto log = TuningLog::open(path_);
  ASSERT_TRUE(log.is_ok());
  ASSERT_TRUE(log.value()->write(line_of("halving", "")).is_ok());
  const std::string so_far =
      "step,phase,fusion_bytes,chunk_bytes,streams,cutover,step_ms,verdict\n"
      "28,halving,1048576,default,all,2^-2,1.250,\"\"\n";
  EXPECT_EQ(text(), so_far);
  v1::TuningLine end = line_of("settled", "no gain, defaults kept");
  end.mutable_data()->set_cutover_log2(-64);
  end.mutable_data()->set_chunk_bytes(4096);
  end.mutable_data()->set_streams(2);
  ASSERT_TRUE(log.value()->write(end).is_ok());
  EXPECT_EQ(text(), so_far + "28,settled,1048576,4096,2,ring,1.250,\"no gain, defaults kept\"\n");
  EXPECT_THAT(describe_settled(end), HasSubstr("after 28 steps: no gain, defaults kept"));
}

TEST_F(TuningFiles, WhereNoLogCanBeIsSaid) {
  EXPECT_THAT(TuningLog::open(folder_).status().message(), HasSubstr(folder_));
}

TEST_F(TuningFiles, APlanComesBackAsItWas) {
  v1::RecordedPlan plan;
  v1::TensorDescriptor& tensor = *plan.add_batches()->add_tensors();
  tensor.set_name("layer \"1\"");
  tensor.add_shape(int64_t{1} << 40);
  tensor.set_prescale(1.0 / 3);
  plan.mutable_batches(0)->set_ends(true);
  plan.mutable_tuning()->set_chunk_bytes(65536);
  ASSERT_TRUE(write_plan(path_, plan).is_ok());
  EXPECT_THAT(text(), HasSubstr("\"chunk_bytes\": 65536")) << "for people";
  AgreementSettings settings;
  ASSERT_TRUE(load(settings).is_ok());
  EXPECT_EQ(settings.replayed_plan, plan.SerializeAsString());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

TEST_F(TuningFiles, WhatIsNoPlanIsRefused) {
  AgreementSettings settings;
  EXPECT_THAT(load(settings).message(), HasSubstr("No such file"));
  for (const char* text : {"", "{}", "[1]", "{\"batches\": [{\"other\": 1}]}"}) {
    std::ofstream(path_) << text;
    EXPECT_THAT(load(settings).message(), HasSubstr("is not what --record-plan writes")) << text;
  }
  EXPECT_EQ(settings.replayed_plan, "");
}

TEST_F(TuningFiles, APlanThatCannotBeWrittenLeavesTheFileAsItWas) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(write_plan(path_, {}).message(), HasSubstr(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

}  // namespace
}  // namespace rueda::agent
