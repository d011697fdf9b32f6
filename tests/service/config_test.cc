#include "daemon/config.h"

#include <cstdlib>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/paths.h"

namespace rueda {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    if (!file_.empty()) ::unlink(file_.c_str());
  }
  void env(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  // Writes a TOML file, and returns the flag that names it.
  std::string toml(const std::string& text) {
    file_ = ::testing::TempDir() + "rueda_config_" + std::to_string(::getpid()) + ".toml";
    std::ofstream(file_) << text;
    return "--config=" + file_;
  }
  static std::variant<Config, int> read(std::vector<std::string> flags) {
    flags.insert(flags.begin(), "ruedad");
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    return read_config(static_cast<int>(argv.size()), argv.data());
  }
  // Returns the configuration of flags, and fails the test when they are refused.
  static Config good(const std::vector<std::string>& flags) {
    auto result = read(flags);
    if (const int* code = std::get_if<int>(&result)) {
      ADD_FAILURE() << "refused with exit code " << *code;
      return {};
    }
    return std::get<Config>(result);
  }
  // Returns the exit code and what was printed on stderr, for flags that are refused.
  static std::pair<int, std::string> bad(const std::vector<std::string>& flags) {
    ::testing::internal::CaptureStderr();
    const auto result = read(flags);
    const std::string printed = ::testing::internal::GetCapturedStderr();
    return {std::holds_alternative<int>(result) ? std::get<int>(result) : 0, printed};
  }

 private:
  std::vector<std::string> set_;
  std::string file_;
};

TEST_F(ConfigTest, Defaults) {
  const Config config = good({});
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  EXPECT_EQ(config.node_id, std::string(host).substr(0, 63));
  EXPECT_EQ(config.sockets, (std::vector<SocketPlace>{{"/run/rueda/ruedad.sock", ""}}));
  EXPECT_EQ(config.listen_host, "127.0.0.1");
  EXPECT_EQ(config.sandbox, "auto");
  EXPECT_EQ(config.advertise_host, "");
  EXPECT_EQ(config.control_port, 28400);
  EXPECT_EQ(config.data_ports, std::vector<uint16_t>{28401});
  EXPECT_EQ(config.http_port, 28402);
  EXPECT_TRUE(config.nodes.empty());
  EXPECT_EQ(config.fusion_threshold_bytes, 64 << 20);
  EXPECT_EQ(config.coordination, core::to_string(core::kDefaultCoordination));
  EXPECT_EQ(config.chunk_bytes, 256u << 10);
  EXPECT_EQ(config.staging_bytes, 64u << 20);
  EXPECT_EQ(config.reduce_threads, 0);
  EXPECT_EQ(config.failure_timeout_seconds, 5);
  EXPECT_EQ(config.start_timeout_ms, 60'000);
  EXPECT_EQ(config.stall_check_seconds, 10);
  EXPECT_EQ(config.stall_shutdown_seconds, 0);
  EXPECT_EQ(config.tcp_congestion, "auto");
  EXPECT_EQ(config.log_level, "info");
  EXPECT_EQ(config.log_format, "text");
  EXPECT_EQ(config.ready_fd, -1);
}

TEST_F(ConfigTest, AFlagGoesBeforeTheEnvironmentAndThatBeforeTheFile) {
  const std::string file = toml("node-id = \"file\"\ndata-port = 1\nhttp-port = 1\n");
  EXPECT_EQ(good({file}).node_id, "file");
  env("RUEDAD_NODE_ID", "environment");
  env("RUEDAD_DATA_PORT", "2");
  EXPECT_EQ(good({file}).node_id, "environment");
  const Config config = good({file, "--node-id", "flag"});
  EXPECT_EQ(config.node_id, "flag");
  EXPECT_EQ(config.data_ports, std::vector<uint16_t>{2});
  EXPECT_EQ(config.http_port, 1);
  EXPECT_EQ(config.control_port, 28400);
}

TEST_F(ConfigTest, EverySettingHasAVariable) {
  env("RUEDAD_SOCKET", "@s=a");
  env("RUEDAD_LISTEN_HOST", "127.0.0.1");
  env("RUEDAD_ADVERTISE_HOST", "h");
  env("RUEDAD_TLS_DIR", "/t");
  env("RUEDAD_CONTROL_PORT", "1");
  env("RUEDAD_HTTP_PORT", "3");
  env("RUEDAD_NODES", "a=h:1,b=h:2");
  env("RUEDAD_FUSION_THRESHOLD", "1M");
  env("RUEDAD_COORDINATION", "cached");
  env("RUEDAD_CHUNK_BYTES", "8K");
  env("RUEDAD_STAGING_BYTES", "1G");
  env("RUEDAD_FAILURE_TIMEOUT", "0.5");
  env("RUEDAD_START_TIMEOUT_MS", "700");
  env("RUEDAD_REDUCE_THREADS", "3");
  env("RUEDAD_TCP_CONGESTION", "system");
  env("RUEDAD_STREAMS", "4");
  env("RUEDAD_LABEL", "rack=r1,zone=eu/1");
  env("RUEDAD_LOG_LEVEL", "debug");
  env("RUEDAD_LOG_FORMAT", "json");
  const Config config = good({});
  EXPECT_EQ(config.sockets, (std::vector<SocketPlace>{{"@s", "a"}}));
  EXPECT_EQ(config.listen_host, "127.0.0.1");
  EXPECT_EQ(config.advertise_host, "h");
  EXPECT_EQ(config.tls_dir, "/t");
  EXPECT_EQ(config.control_port, 1);
  EXPECT_EQ(config.http_port, 3);
  EXPECT_EQ(config.nodes, (std::vector<std::string>{"a=h:1", "b=h:2"}));
  EXPECT_EQ(config.fusion_threshold_bytes, 1 << 20);
  EXPECT_EQ(config.coordination, "cached");
  EXPECT_EQ(config.chunk_bytes, 8192u);
  EXPECT_EQ(config.staging_bytes, 1u << 30);
  EXPECT_EQ(config.reduce_threads, 3);
  EXPECT_EQ(failure_timeout_ms(config), 500);
  EXPECT_EQ(config.start_timeout_ms, 700);
  EXPECT_EQ(config.tcp_congestion, "system");
  EXPECT_EQ(config.streams, 4u);
  EXPECT_EQ(config.labels, (std::vector<std::string>{"rack=r1", "zone=eu/1"}));
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_EQ(config.log_format, "json");
}

TEST_F(ConfigTest, NodesByFlagAndByFile) {
  const std::vector<std::string> two{"a=h:1", "b=h:2"};
  EXPECT_EQ(good({"--nodes", "a=h:1,b=h:2"}).nodes, two);
  EXPECT_EQ(good({"--nodes=a=h:1", "--nodes=b=h:2"}).nodes, two);
  EXPECT_EQ(good({toml("nodes = [\"a=h:1\", \"b=h:2\"]\n")}).nodes, two);
}

TEST_F(ConfigTest, SizesAreTakenWithSuffixes) {
  const std::map<std::string, int64_t> sizes{
      {"0", 0},         {"4096", 4096},    {"64K", 64 << 10},       {"64KiB", 64 << 10},
      {"2MB", 2 << 20}, {"32m", 32 << 20}, {"1G", int64_t{1} << 30}};
  for (const auto& [text, bytes] : sizes) {
    EXPECT_EQ(good({"--fusion-threshold", text}).fusion_threshold_bytes, bytes) << text;
  }
  EXPECT_EQ(good({toml("chunk-bytes = \"1M\"\n")}).chunk_bytes, 1u << 20);
}

TEST_F(ConfigTest, ValuesThatCannotBeAreRefusedAndNamed) {
  const std::vector<std::pair<std::string, std::string>> wrong{{"--chunk-bytes", "4095"},
                                                               {"--chunk-bytes", "5M"},
                                                               {"--chunk-bytes", "-1"},
                                                               {"--staging-bytes", "1000"},
                                                               {"--reduce-threads", "65"},
                                                               {"--fusion-threshold", "-1"},
                                                               {"--fusion-threshold", "1X"},
                                                               {"--coordination", "telepathy"},
                                                               {"--failure-timeout", "0.099"},
                                                               {"--failure-timeout", "soon"},
                                                               {"--start-timeout-ms", "0"},
                                                               {"--control-port", "65536"},
                                                               {"--data-port", "-1"},
                                                               {"--http-port", "http"},
                                                               {"--log-level", "loud"},
                                                               {"--log-format", "xml"},
                                                               {"--fault", "reduce"},
                                                               {"--node-id", std::string(64, 'x')},
                                                               {"--admin-group", "no-such-group"},
                                                               {"--streams", "0"},
                                                               {"--streams", "17"},
                                                               {"--stall-check-seconds", "nan"}};
  for (const auto& [flag, value] : wrong) {
    const auto [code, printed] = bad({flag, value});
    EXPECT_NE(code, 0) << flag << ' ' << value;
    EXPECT_NE(printed.find(flag), std::string::npos) << printed;
  }
}

TEST_F(ConfigTest, TheAdminGroupHasANameOrANumber) {
  EXPECT_EQ(good({}).admin_group, "");
  EXPECT_EQ(good({"--admin-group", "root"}).admin_group, "root");
  EXPECT_EQ(good({"--admin-group=54321"}).admin_group, "54321");
  EXPECT_NE(bad({"--admin-group", "no-such-group"}).second.find("groupadd no-such-group"),
            std::string::npos);
}

TEST_F(ConfigTest, LabelsAreKeysWithOneValueEach) {
  const std::vector<std::string> labels{"rack=r1", "zone=eu/1"};
  EXPECT_EQ(good({"--label", "rack=r1,zone=eu/1"}).labels, labels);
  EXPECT_EQ(good({"--label=rack=r1", "--label=zone=eu/1"}).labels, labels);
  for (const char* wrong : {"rack", "rack=", "=a", "rack=a b", "rack=a,rack=b"}) {
    const auto [code, printed] = bad({"--label", wrong});
    EXPECT_NE(code, 0) << wrong;
    EXPECT_NE(printed.find("--label"), std::string::npos) << printed;
  }
}

TEST_F(ConfigTest, UnknownFlagsKeysAndFilesAreErrors) {
  EXPECT_NE(bad({"--no-such-flag"}).first, 0);
  const auto [code, printed] = bad({toml("node-id = \"a\"\nno-such-key = 1\n")});
  EXPECT_NE(code, 0);
  EXPECT_NE(printed.find("no-such-key"), std::string::npos) << printed;
  const auto [missing, text] = bad({"--config=/no/such/file.toml"});
  EXPECT_NE(missing, 0);
  EXPECT_NE(text.find("/no/such/file.toml"), std::string::npos) << text;
}

TEST_F(ConfigTest, AValueInTheEnvironmentIsCheckedToo) {
  env("RUEDAD_FAILURE_TIMEOUT", "0.01");
  EXPECT_NE(bad({}).first, 0);
}

TEST_F(ConfigTest, PrivateLeavesThePortsThatAreGivenAsFlags) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--private", "--data-port", "7", "--http-port=8"},
        std::vector<std::string>{"--data-port=7", "--http-port", "8", "--private"}}) {
    const Config config = good(flags);
    EXPECT_EQ(config.control_port, 0);
    EXPECT_EQ(config.data_ports, std::vector<uint16_t>{7});
    EXPECT_EQ(config.http_port, 8);
  }
}

TEST_F(ConfigTest, PrivateGoesBeforeTheEnvironmentAndTheFileOfTheNodesOwnDaemon) {
  env("RUEDAD_CONTROL_PORT", "5");
  env("RUEDAD_TLS_DIR", "/x");
  const Config config = good({toml("data-port = 6\ninsecure = true\n"), "--private"});
  EXPECT_EQ(config.control_port, 0);
  EXPECT_EQ(config.data_ports, std::vector<uint16_t>{0});
  EXPECT_EQ(config.tls_dir, "");
  EXPECT_FALSE(config.is_insecure);
  const Config given = good({"--private", "--tls-dir=/y", "--insecure"});
  EXPECT_EQ(given.tls_dir, "/y");
  EXPECT_TRUE(given.is_insecure);
}

TEST_F(ConfigTest, HowThePortsAreProtectedMayBeInTheFile) {
  const Config config = good({toml("tls-dir = \"/x\"\ninsecure = true\n")});
  EXPECT_EQ(config.tls_dir, "/x");
  EXPECT_TRUE(config.is_insecure);
  env("RUEDAD_INSECURE", "true");
  EXPECT_TRUE(good({}).is_insecure);
}

TEST_F(ConfigTest, PrivateTakesFreePorts) {
  const Config config = good({"--private"});
  EXPECT_EQ(config.control_port + config.data_ports.front() + config.http_port, 0);
}

TEST_F(ConfigTest, HelpAndVersionEndWell) {
  for (const char* flag : {"--help", "--version"}) {
    ::testing::internal::CaptureStdout();
    const auto result = read({flag});
    const std::string printed = ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(std::holds_alternative<int>(result));
    EXPECT_EQ(std::get<int>(result), 0);
    EXPECT_NE(printed, "");
  }
}

TEST_F(ConfigTest, HelpSetsApartWhatOnlyMeasurementsChange) {
  ::testing::internal::CaptureStdout();
  read({"--help"});
  const std::string printed = ::testing::internal::GetCapturedStdout();
  const size_t advanced = printed.find("Advanced:");
  ASSERT_NE(advanced, std::string::npos) << printed;
  EXPECT_GT(printed.find("--chunk-bytes"), advanced);
  EXPECT_LT(printed.find("--fusion-threshold"), advanced);
}

TEST_F(ConfigTest, TheExampleOfTheSystemdUnitIsRight) {
  const Config config =
      good({"--config=" + testing_support::source_path("deploy/systemd/ruedad.toml")});
  EXPECT_EQ(config.node_id, "node-a");
  EXPECT_EQ(config.nodes,
            (std::vector<std::string>{"node-a=10.0.0.1:28400", "node-b=10.0.0.2:28400"}));
  // Values that the file calls defaults are the defaults.
  const Config defaults;
  EXPECT_EQ(config.sockets, defaults.sockets);
  EXPECT_EQ(config.listen_host, "0.0.0.0") << "the example is of a cluster";
  EXPECT_EQ(config.control_port, defaults.control_port);
  EXPECT_EQ(config.data_ports, defaults.data_ports);
  EXPECT_EQ(config.http_port, defaults.http_port);
  EXPECT_EQ(config.fusion_threshold_bytes, defaults.fusion_threshold_bytes);
  EXPECT_EQ(config.failure_timeout_seconds, defaults.failure_timeout_seconds);
  EXPECT_EQ(config.tcp_congestion, defaults.tcp_congestion);
  EXPECT_EQ(config.log_level, defaults.log_level);
  EXPECT_EQ(config.log_format, defaults.log_format);
}

TEST_F(ConfigTest, SocketsMayBeSeveral) {
  const std::vector<SocketPlace> wanted{{"/run/a", ""}, {"/run/b", "team-b"}};
  EXPECT_EQ(good({"--socket", "/run/a", "--socket=/run/b=team-b", "--http-port", "1"}).sockets,
            wanted);
  const std::string file = toml("socket = [\"/run/a\", \"/run/b=team-b\"]\n");
  EXPECT_EQ(good({file}).sockets, wanted);
  EXPECT_EQ(good({file, "--socket=@c"}).sockets, (std::vector<SocketPlace>{{"@c", ""}}));
  env("RUEDAD_SOCKET", "@d=d");
  EXPECT_EQ(good({file}).sockets, (std::vector<SocketPlace>{{"@d", "d"}}));
}

TEST_F(ConfigTest, ASocketHasOnePathAndARightName) {
  const auto [code, printed] = bad({"--socket=/run/a=x", "--socket=/run/a=y"});
  EXPECT_EQ(code, 2);
  EXPECT_NE(printed.find("--socket has /run/a twice"), std::string::npos) << printed;
  const auto [wrong, text] = bad({"--socket=/run/a=Team"});
  EXPECT_NE(wrong, 0);
  EXPECT_NE(text.find("\"Team\" cannot be the name"), std::string::npos) << text;
}

TEST_F(ConfigTest, QuotasAreFlagsVariablesAndATableOfTheFile) {
  using session::Resource;
  const std::string file = toml(
      "http-port = 1\n\n[quota]\njobs = 3\narena-bytes = \"2G\"\ngpu-workers = 5\nprocesses = 7\n");
  env("RUEDAD_QUOTA_PROCESSES", "8");
  const Config config = good({file, "--quota-gpu-workers=6", "--quota-arenas=9"});
  EXPECT_EQ(config.http_port, 1);
  EXPECT_EQ(config.quota[Resource::kJobs], 3u);
  EXPECT_EQ(config.quota[Resource::kArenaBytes], uint64_t{2} << 30);
  EXPECT_EQ(config.quota[Resource::kSessions], 8u) << "the environment goes before the file";
  EXPECT_EQ(config.quota[Resource::kGpuWorkers], 6u) << "and a flag before both";
  EXPECT_EQ(config.quota[Resource::kArenas], 9u);
  EXPECT_EQ(config.quota[Resource::kPinnedBytes], 0u) << "the default";
}

TEST_F(ConfigTest, ANamedSocketMayHaveAQuotaOfItsOwn) {
  using session::Resource;
  const std::string sockets = "socket = [\"@a\", \"@b=team-b\", \"@c=c.d\"]\n";
  const Config config =
      good({toml(sockets + "[quota]\njobs = 3\n[quota.team-b]\njobs = 4\n"
                           "staging-bytes = \"1M\"\n[quota.c.d]\nconnections = 5\n")});
  EXPECT_EQ(config.quota[Resource::kJobs], 3u);
  ASSERT_EQ(config.quota_of.size(), 2u);
  EXPECT_EQ(config.quota_of.at("team-b")[Resource::kJobs], 4u);
  EXPECT_EQ(config.quota_of.at("team-b")[Resource::kStagingBytes], 1u << 20);
  EXPECT_EQ(config.quota_of.at("c.d")[Resource::kConnections], 5u);
  EXPECT_EQ(config.quota_of.at("c.d")[Resource::kJobs], 0u);
}

TEST_F(ConfigTest, MistakesInQuotasAreNamed) {
  for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
           {"[quota]\nsheep = 1\n", "quota-sheep"},
           {"[quota]\njobs = 257\n", "--quota-jobs"},
           {"[quota]\narena-bytes = \"2X\"\n", "--quota-arena-bytes"},
           {"[quota.team-a]\njobs = 1\n", "[quota.team-a] is of no --socket PATH=team-a"},
           {"socket = \"@a=a\"\n[quota.a]\nsheep = 1\n", "quota.a.sheep"},
           {"socket = \"@a=a\"\n[quota.a]\njobs = 257\n", "--quota.a.jobs: Value 257"},
           {"[quota.Team]\njobs = 1\n", "quota.Team.jobs"},
           {"[sheep]\njobs = 1\n", "sheep"}}) {
    const auto [code, printed] = bad({toml(text)});
    EXPECT_NE(code, 0) << text;
    EXPECT_NE(printed.find(named), std::string::npos) << text << printed;
  }
}

TEST_F(ConfigTest, TheSandboxIsOneOfThree) {
  EXPECT_EQ(good({toml("sandbox = \"no\"\n")}).sandbox, "no");
  EXPECT_EQ(good({"--sandbox=yes"}).sandbox, "yes");
  env("RUEDAD_SANDBOX", "no");
  EXPECT_EQ(good({}).sandbox, "no");
  const auto [code, printed] = bad({"--sandbox", "some"});
  EXPECT_GT(code, 1);
  EXPECT_NE(printed.find("--sandbox"), std::string::npos) << printed;
}

}  // namespace
}  // namespace rueda
