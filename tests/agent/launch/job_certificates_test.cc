#include "agent/launch/job_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon/security/certificates/tls_folder.h"

namespace rueda::agent {
namespace {

JobLayout job_with(char token, const char* id = "job-0123456789ab") {
  JobLayout job;
  job.job_id = id;
  job.token = std::string(32, token);
  return job;
}

// Returns what a daemon makes of the line that its launcher tells it.
std::shared_ptr<security::TlsFolder> told(const JobLayout& job, const std::string& node_id) {
  const std::string line =
      certificate_line(job_authority(job).value(), job.job_id, node_id).value();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_LT(line.size(), 4096u) << "the least that a pipe holds";
  const auto json = nlohmann::json::parse(line);
  const auto text_of = [&json](const char* key) { return json.at(key).get<std::string>(); };
  return security::TlsFolder::of({text_of("certificate"), text_of("key")}, text_of("authority"))
      .value();
}

TEST(JobCertificates, DaemonsOfDifferentLaunchersKnowEachOther) {
  const auto one = told(job_with('t'), "node0");
  const auto two = told(job_with('t'), "node1");
  EXPECT_EQ(to_uri(one->files()->own.identity), "spiffe://job-0123456789ab/rueda/node/node0");
  EXPECT_NE(one->files()->authorities, two->files()->authorities);
  EXPECT_NE(one->files()->pair.key, two->files()->pair.key);
  EXPECT_TRUE(check_pair(two->files()->pair, one->files()->authorities).is_ok());
  EXPECT_EQ(one->recognise(two->files()->pair.certificate).value().name, "node1");
}

TEST(JobCertificates, AnotherJobsAreNotVouchedFor) {
  const auto one = told(job_with('t'), "node0");
  for (const JobLayout& job : {job_with('u'), job_with('t', "job-ffffffffffff")}) {
    const auto other = told(job, "node1");
    EXPECT_FALSE(check_pair(other->files()->pair, one->files()->authorities).is_ok());
  }
}

// Node 0 says what the job's id is.
TEST(JobCertificates, AnIdThatCanBeNoTrustDomainIsRefused) {
  EXPECT_FALSE(job_authority(job_with('t', "Job")).is_ok());
  EXPECT_FALSE(job_authority(job_with('t', "a/b")).is_ok());
  EXPECT_FALSE(job_authority(job_with('t', "")).is_ok());
}

}  // namespace
}  // namespace rueda::agent
