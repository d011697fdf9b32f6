#include "bench/predict/data_plane.h"

#include <gtest/gtest.h>

namespace rueda::scale {
namespace {

constexpr DataPlaneCosts kFree{};

Cluster cluster(const char* text) { return parse_cluster(nlohmann::json::parse(text)); }

// Baidu's arithmetic ("The Communication Problem"): 1.2 GB at 1 GB/s, all to one and back,
// costs 1.2 s with two nodes and 10.8 s with ten, and by a ring no more than 2.4 s with any number.
TEST(DataPlaneTest, CentralCostsGrowAndARingsDoNot) {
  const auto added_s = [](int nodes, const char* algorithm) {
    nlohmann::json json{{"nodes", nodes},  {"nic_gbit", 8},     {"parameters", 300e6},
                        {"compute_ms", 0}, {"fusion_bytes", 0}, {"algorithm", algorithm}};
    return predict(parse_cluster(json), kFree).step_ms / 1e3;
  };
  EXPECT_NEAR(added_s(2, "central"), 1.2, 0.001);
  EXPECT_NEAR(added_s(10, "central"), 10.8, 0.001);
  EXPECT_NEAR(added_s(2, "ring"), 1.2, 0.001);
  EXPECT_NEAR(added_s(10, "ring"), 2.16, 0.001);
  EXPECT_LT(added_s(1000, "ring"), 2.4);
}

TEST(DataPlaneTest, WhatIsHiddenCostsNothing) {
  // 102 MB take 16 ms at 100 Gbit/s; all but the last gradients go during the backward pass.
  const Prediction found = predict(
      cluster(R"({"nodes": 4, "nic_gbit": 100, "model": "resnet50", "images": 64})"), kFree);
  EXPECT_NEAR(cluster(R"({"model": "resnet50", "images": 64})").compute_ms, 64 / 219.0 * 1e3, 0.01);
  EXPECT_GT(found.efficiency, 0.99);
  EXPECT_LE(found.efficiency, 1);
  // At 1 Gbit/s the link is busy for 1.2 s, and computing takes 0.3 s.
  const Prediction slow =
      predict(cluster(R"({"nodes": 4, "nic_gbit": 1, "model": "resnet50", "images": 64})"), kFree);
  EXPECT_NEAR(slow.step_ms, 1227 + 100, 30);
}

TEST(DataPlaneTest, EachCostCounts) {
  const char* text = R"({"nodes": 4, "parameters": 1e6, "compute_ms": 0})";
  const double bytes = 4e6;
  EXPECT_NEAR(predict(cluster(text), {.hop_us = 10}).step_ms, 0.06, 1e-9);
  EXPECT_NEAR(predict(cluster(text), {.operation_us = 10}).step_ms, 0.01, 1e-9);
  EXPECT_NEAR(predict(cluster(text), {.rank_ns_per_byte = 1}).step_ms, bytes / 1e6, 1e-9);
  EXPECT_NEAR(predict(cluster(text), {.wire_ns_per_byte = 1}).step_ms, 1.5 * bytes / 1e6, 1e-9);
  // Cores that all nodes share have the work of all of them.
  const char* shared = R"({"nodes": 4, "parameters": 1e6, "compute_ms": 0, "shared_cores": 2})";
  EXPECT_NEAR(predict(cluster(shared), {.wire_ns_per_byte = 1}).step_ms, 3 * bytes / 1e6, 1e-9);
  // A card that moves the bytes leaves the additions.
  const char* rdma = R"({"nodes": 4, "parameters": 1e6, "compute_ms": 0, "transport": "rdma"})";
  EXPECT_EQ(predict(cluster(rdma), {.wire_ns_per_byte = 1}).step_ms, 0);
}

TEST(DataPlaneTest, FusionSavesHops) {
  const DataPlaneCosts costs{.hop_us = 100};
  const char* fused = R"({"nodes": 8, "model": "googlenet-no-aux", "compute_ms": 0})";
  const char* single =
      R"({"nodes": 8, "model": "googlenet-no-aux", "compute_ms": 0, "fusion_bytes": 0})";
  EXPECT_EQ(predict(cluster(fused), costs).operations, 1);
  EXPECT_EQ(predict(cluster(single), costs).operations, 173);
}

std::string refusal(const char* text) {
  try {
    cluster(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(DataPlaneTest, WrongFilesAreRefusedWithTheCulprit) {
  EXPECT_NE(refusal("[]").find("no JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"model": "resnet51"})").find("'resnet51'"), std::string::npos);
  EXPECT_NE(refusal(R"({"model": "vgg16", "node": 3})").find("'node'"), std::string::npos);
  EXPECT_NE(refusal(R"({"model": "vgg16", "nodes": 0})").find("'nodes' is 0"), std::string::npos);
  EXPECT_NE(refusal(R"({"model": "vgg16", "nodes": 2.5})").find("whole"), std::string::npos);
  EXPECT_NE(refusal(R"({"model": "vgg16", "nic_gbit": "1"})").find("no number"), std::string::npos);
  EXPECT_NE(refusal(R"({"model": "vgg16", "transport": "ib"})").find("'transport'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"parameters": 1e6})").find("'compute_ms'"), std::string::npos);
  EXPECT_NE(refusal("{}").find("'model' or 'parameters'"), std::string::npos);
  EXPECT_THROW(parse_costs(nlohmann::json::object()), std::runtime_error);
  EXPECT_THROW(predict_file("/nowhere.json", "/nowhere.json"), std::runtime_error);
}

}  // namespace
}  // namespace rueda::scale
