// Tests, with engines of several nodes, that all ranks are told of the same value that is not
// finite.
#include "daemon/engine/trace/finite_watch.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/engine/cluster.h"

namespace rueda::engine {
namespace {

using testing::Cluster;
using testing::ClusterOptions;
using testing::FakeSession;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Planted {
  int rank;
  std::string tensor;
  size_t element;
  float value;
};

class FiniteJob {
 public:
  explicit FiniteJob(ClusterOptions options) : cluster_(checking(std::move(options))) {
    cluster_.register_everywhere("job");
    sessions_ = cluster_.start("job");
  }

  // Makes every rank submit all the tensors, and waits for their ends.
  void step(const std::vector<std::string>& names, int64_t elements,
            const std::vector<Planted>& planted = {}, const core::TensorDescriptor& as = {}) {
    for (FakeSession* session : sessions_) {
      for (const std::string& name : names) {
        Cluster::Tensor& tensor = cluster_.submit(*session, name, elements, 1, as);
        for (const Planted& bad : planted) {
          if (bad.rank == session->attach().rank.value && bad.tensor == name) {
            tensor.input[bad.element] = bad.value;
          }
        }
      }
    }
    completions_ += names.size();
    ASSERT_TRUE(cluster_.run_until([&] {
      return std::all_of(sessions_.begin(), sessions_.end(), [&](const FakeSession* session) {
        return session->completions.size() == completions_;
      });
    }));
  }

  // Makes every rank ask, and returns what each was told, which is the same for all.
  std::vector<std::optional<session::NonfiniteNews>> told() {
    std::vector<size_t> before;
    for (FakeSession* session : sessions_) {
      before.push_back(session->news.size());
      cluster_.engine(cluster_.node_of(session->attach().rank)).on_nonfinite_asked(*session);
    }
    EXPECT_TRUE(cluster_.run_until([&] {
      for (size_t i = 0; i < sessions_.size(); ++i) {
        if (sessions_[i]->news.size() == before[i]) return false;
      }
      return true;
    }));
    cluster_.settle();
    const auto values = [](const FakeSession* session) {
      std::vector<std::string> texts;
      for (const auto& news : session->news) {
        if (news) texts.push_back(news->text);
      }
      return texts;
    };
    for (const FakeSession* session : sessions_) EXPECT_EQ(values(session), values(sessions_[0]));
    std::vector<std::optional<session::NonfiniteNews>> found;
    for (const auto& news : sessions_[0]->news) {
      if (news) found.push_back(news);
    }
    return found;
  }

  double counted() {
    double sum = 0;
    for (int i = 0; i < cluster_.size(); ++i) {
      sum += cluster_.node(i).metrics->job("job")->nonfinite_contributions.Value();
    }
    return sum;
  }

  Cluster& cluster() { return cluster_; }
  const std::vector<FakeSession*>& sessions() const { return sessions_; }

 private:
  static ClusterOptions checking(ClusterOptions options) {
    options.checks_finite = true;
    return options;
  }

  Cluster cluster_;
  std::vector<FakeSession*> sessions_;
  size_t completions_ = 0;
};

TEST(FiniteWatch, FindsNothingInAJobThatIsWell) {
  FiniteJob job({.ranks_per_node = {2, 1}});
  for (int step = 0; step < 5; ++step) job.step({"a", "b"}, 100);
  EXPECT_TRUE(job.told().empty());
  for (const FakeSession* session : job.sessions()) EXPECT_EQ(session->news.size(), 1u);
  EXPECT_EQ(job.counted(), 0);
}

TEST(FiniteWatch, TellsAllRanksOfTheSameOne) {
  const core::TensorDescriptor reduce_scatter{.kind = CollectiveKind::kReduceScatter};
  const core::TensorDescriptor reduce{.kind = CollectiveKind::kReduce, .root = Rank{1}};
  const core::TensorDescriptor adasum{.op = ReduceOp::kAdasum};
  const std::vector<ClusterOptions> shapes{
      {.ranks_per_node = {2, 2}},
      {.ranks_per_node = {2, 1, 1}},
      {.ranks_per_node = {4}},
      {.ranks_per_node = {2, 2}, .reducer = core::Reducer::kDevice},
      {.ranks_per_node = {2, 2}, .data_loops = {2, 2}},
  };
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    for (const core::TensorDescriptor& as :
         {core::TensorDescriptor{}, reduce_scatter, reduce, adasum}) {
      for (const int64_t elements : {12, 600'000}) {
        SCOPED_TRACE("shape " + std::to_string(shape) + ", " + to_string(as.kind) + ", " +
                     to_string(as.op) + ", " + std::to_string(elements));
        FiniteJob job(shapes[shape]);
        job.step({"a", "b"}, elements, {}, as);
        const auto element = static_cast<size_t>(elements - 2);
        // The batch has "a" first, and rank 1 before rank 3.
        job.step({"a", "b"}, elements,
                 {{3, "a", 0, kNaN}, {3, "b", 0, kNaN}, {1, "b", element, -kInfinity}}, as);
        const auto told = job.told();
        ASSERT_EQ(told.size(), 1u);
        EXPECT_EQ(told[0]->rank, Rank{1});
        EXPECT_EQ(told[0]->tensor, "b");
        EXPECT_EQ(told[0]->step, 2u);
        EXPECT_EQ(told[0]->element, element);
        EXPECT_EQ(told[0]->value, 2u);
        EXPECT_NE(told[0]->text.find("rank 1 on node n0 gave -infinity in element " +
                                     std::to_string(element) + " of tensor \"b\" in step 2"),
                  std::string::npos)
            << told[0]->text;
        EXPECT_EQ(job.counted(), 3);
      }
    }
  }
}

// It is not told in between: GradScaler's first overflows must not hide what goes wrong later.
TEST(FiniteWatch, TellsAgainWhenTheStepHasDoubled) {
  FiniteJob job({.ranks_per_node = {1, 1}});
  std::vector<uint64_t> steps;
  for (int step = 1; step <= 13; ++step) {
    job.step({"w"}, 8, {{1, "w", 3, kNaN}});
    steps.clear();
    for (const auto& told : job.told()) steps.push_back(told->step);
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{1, 2, 4, 8}));
  EXPECT_EQ(job.counted(), 13);
}

TEST(FiniteWatch, LooksAtReductionsOfFloatsAlone) {
  FiniteJob job({.ranks_per_node = {1, 1}});
  const core::TensorDescriptor broadcast{.kind = CollectiveKind::kBroadcast, .root = Rank{0}};
  job.step({"w"}, 8, {{0, "w", 3, kNaN}}, broadcast);
  const core::TensorDescriptor integers{.dtype = DType::kInt32};
  job.step({"i"}, 8, {{0, "i", 3, kNaN}}, integers);
  EXPECT_TRUE(job.told().empty());
  EXPECT_EQ(job.counted(), 0);
}

TEST(FiniteWatch, AFiniteSumThatOverflowsIsNobodysFault) {
  FiniteJob job({.ranks_per_node = {2}});
  const float largest = std::numeric_limits<float>::max();
  job.step({"w"}, 8, {{0, "w", 3, largest}, {1, "w", 3, largest}});
  EXPECT_TRUE(job.told().empty());
}

TEST(FiniteWatch, WhatAJobDoesNotAskForIsNotLookedAt) {
  Cluster cluster({.ranks_per_node = {2}});
  cluster.register_everywhere("job");
  const auto sessions = cluster.start("job");
  EXPECT_FALSE(sessions[0]->places[0].checks_finite);
  for (FakeSession* session : sessions) cluster.submit(*session, "w", 8, kNaN);
  ASSERT_TRUE(cluster.run_until([&] { return sessions[1]->completions.size() == 1; }));
  cluster.settle();
  EXPECT_TRUE(sessions[0]->news.empty());
  EXPECT_EQ(cluster.node(0).metrics->job("job")->nonfinite_contributions.Value(), 0);
}

// The end of a job does not wait for more.
TEST(FiniteWatch, TellsWhatItKnowsWhenAJobFails) {
  FiniteJob job({.ranks_per_node = {3}});
  job.step({"w"}, 8, {{1, "w", 0, kNaN}});
  job.cluster().lose(*job.sessions()[1], "died of it");
  ASSERT_TRUE(job.cluster().run_until([&] { return !job.sessions()[0]->failures.empty(); }));
  ASSERT_EQ(job.sessions()[0]->news.size(), 1u);
  EXPECT_EQ(job.sessions()[0]->news[0]->rank, Rank{1});
}

}  // namespace
}  // namespace rueda::engine
