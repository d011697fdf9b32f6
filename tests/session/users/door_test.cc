// Tests what clients send over the socket beside bytes: nobody else waits for it.
#include <future>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "daemon/session/users/doors.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

const Principal kSomebody = Principal::user(1001);
const Principal kOther = Principal::named("team-a");

bool is_ready(const std::future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(Doors, WhoSleepsIsInNobodyElsesWay) {
  DoorLimits patient;
  patient.stuck_ms = 3'600'000;
  Doors doors(patient);
  std::promise<void> wake;
  std::promise<void> theirs;
  std::promise<void> behind;
  doors.run(kSomebody, [woken = wake.get_future().share()] { woken.wait(); });
  doors.run(kSomebody, [&] { behind.set_value(); });
  doors.run(kOther, [&] { theirs.set_value(); });
  theirs.get_future().wait();
  auto done = behind.get_future();
  EXPECT_FALSE(is_ready(done)) << "a user's own wait for each other";
  wake.set_value();
  done.wait();
  EXPECT_EQ(doors.abandoned(), 0u);
}

TEST(Doors, AStuckThreadIsReplacedAndAUserWithManyIsRefused) {
  DoorLimits limits;
  limits.stuck_ms = 1;
  limits.stuck_of_principal = 2;
  Doors doors(limits);
  std::promise<void> wake;
  const std::shared_future<void> woken = wake.get_future().share();
  for (int i = 0; i < 3; ++i) doors.run(kSomebody, [woken] { woken.wait(); });
  std::promise<void> last;
  doors.run(kSomebody, [&] { last.set_value(); });
  while (!doors.is_refused(kSomebody)) std::this_thread::yield();
  EXPECT_EQ(doors.abandoned(), 2u);
  EXPECT_FALSE(doors.is_refused(kOther));
  auto done = last.get_future();
  EXPECT_FALSE(is_ready(done)) << "the third is one too many to be given up";
  wake.set_value();
  done.wait();
  while (doors.is_refused(kSomebody)) std::this_thread::yield();
}

TEST(Doors, ManyUsersShareWhatIsLeft) {
  DoorLimits limits;
  limits.threads = 2;
  Doors doors(limits);
  std::vector<std::promise<void>> done(20);
  for (size_t i = 0; i < done.size(); ++i) {
    doors.run(Principal::user(static_cast<uid_t>(i)), [&done, i] { done[i].set_value(); });
  }
  for (auto& one : done) one.get_future().wait();
}

// A socket whose last close sleeps until the other end is gone.
class Lingering {
 public:
  Lingering() {
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), name, bytes), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), name, &bytes), 0);
    near_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(near_.get(), name, bytes), 0);
    far_ = UniqueFd(::accept(listener.get(), nullptr, nullptr));
    const linger forever{1, 3600};
    EXPECT_EQ(::setsockopt(near_.get(), SOL_SOCKET, SO_LINGER, &forever, sizeof(forever)), 0);
    const std::vector<char> unread(1 << 16);
    while (::send(near_.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    }
  }
  int fd() const { return near_.get(); }
  // Forgets the socket, so that the copy that was sent is the last one.
  void forget() {
    // A copy stays until nobody sleeps here: if it could not be sent, this is the last one.
    UniqueFd far = std::move(far_);
    std::thread([near = near_.release()] { ::close(near); }).detach();
    far_ = std::move(far);
  }
  ~Lingering() { far_.reset(); }

 private:
  UniqueFd near_;
  UniqueFd far_;
};

class DoorTest : public SessionTest {
 protected:
  DoorTest() { is_old_kernel_ = true; }
  // A loop that closed the last copy would sleep for an hour.
  void expect_the_loop_goes_on() {
    auto client = attach(1);
    intern(*client, make_tensor("t", {1}));
    rueda_abi_status bye = request(*client, RUEDA_ABI_DETACH, nullptr, 0);
    EXPECT_EQ(bye.code, 0);
  }
};

TEST_F(DoorTest, LingeringDescriptorOnGreeting) {
  start_server();
  for (const std::string bytes : {"garbage that nobody speaks", "R", "PRI"}) {
    Lingering lingering;
    RawClient client(path_);
    ASSERT_TRUE(client.send_with(bytes.data(), bytes.size(), {lingering.fd()}));
    lingering.forget();
    expect_the_loop_goes_on();
    client.close();
    expect_the_loop_goes_on();
  }
}

TEST_F(DoorTest, LingeringDescriptorsOnAttach) {
  start_server();
  struct {
    rueda_abi_header header{RUEDA_ABI_MAGIC, RUEDA_ABI_VERSION, RUEDA_ABI_ATTACH,
                            sizeof(rueda_abi_attach), 0};
    rueda_abi_attach body{};
  } message;
  std::strcpy(message.body.job_id, "job-1");
  for (const size_t count : {1, 253}) {
    Lingering lingering;
    RawClient client(path_);
    ASSERT_TRUE(
        client.send_with(&message, sizeof(message), std::vector<int>(count, lingering.fd())));
    lingering.forget();
    EXPECT_THAT(receive(client).as<rueda_abi_attach_reply>().text,
                HasSubstr("before the attach message was answered"));
    expect_the_loop_goes_on();
  }
}

TEST_F(DoorTest, LingeringDescriptorOutOfBand) {
  start_server();
  Lingering lingering;
  RawClient client(path_);
  client.send_bytes("RU", 2);
  // The kernel may lack MSG_OOB.
  (void)client.send_with("D", 1, {lingering.fd()}, MSG_OOB);
  client.send_bytes("A", 1);
  lingering.forget();
  expect_the_loop_goes_on();
  client.close();
  expect_the_loop_goes_on();
}

TEST_F(DoorTest, LingeringDescriptorsOfAnAttachedClient) {
  start_server();
  rueda_abi_arena body{4096, 0, 0};
  for (const size_t count : {1, 4, 16}) {
    Lingering lingering;
    auto client = attach();
    client->send(RUEDA_ABI_ARENA_ADD, &body, sizeof(body), std::vector<int>(count, lingering.fd()));
    lingering.forget();
    expect_the_loop_goes_on();
    client->close();
    expect_the_loop_goes_on();
    pump_until([&] { return !events_.lost.empty(); }, "the end of the client");
    events_.lost.clear();
  }
}

TEST_F(DoorTest, LingeringDescriptorInPlaceOfDeviceMemory) {
  start_server();
  auto client = attach();
  UniqueFd counters = make_memfd(4096);
  rueda_abi_device_memory memory{.kind = RUEDA_ABI_DEVICE_COUNTERS, .bytes = 4096};
  client->send(RUEDA_ABI_DEVICE_ADD, &memory, sizeof(memory), {counters.get()});
  pump_until([&] { return events_.memories.size() == 1; }, "the counters");
  Lingering lingering;
  memory.kind = RUEDA_ABI_DEVICE_FD;
  client->send(RUEDA_ABI_DEVICE_ADD, &memory, sizeof(memory), {lingering.fd()});
  pump_until([&] { return events_.memories.size() == 2; }, "the memory");
  lingering.forget();
  events_.memories.clear();
  expect_the_loop_goes_on();
}

TEST_F(DoorTest, LingeringDescriptorThatNobodyAccepts) {
  start_server();
  Lingering lingering;
  RawClient client(path_);
  ASSERT_TRUE(client.send_with("RUDA", 4, {lingering.fd()}));
  lingering.forget();
  server_->stop();
}

TEST_F(DoorTest, DescriptorsThatComeWithCallsEndTheConnection) {
  start_server();
  RawClient client(path_);
  client.send_bytes("RUDG", 4);
  pump_until([&] { return !handed_off_.empty(); }, "the hand-off");
  Lingering lingering;
  ASSERT_TRUE(client.send_with("x", 1, {lingering.fd()}));
  lingering.forget();
  pump_until([&] { return client.is_closed(); }, "the end of the connection");
  EXPECT_EQ(server_->stats().rejected, 1u);
  expect_the_loop_goes_on();
}

TEST_F(DoorTest, NothingCanBeSentToADoorbellOfTheClients) {
  start_server();
  auto client = attach();
  EXPECT_EQ(::send(client->client_doorbell.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(DoorTest, ANewKernelRefusesDescriptorsUntilTheAttach) {
  is_old_kernel_ = false;
  start_server();
  RawClient client(path_);
  UniqueFd memfd = make_memfd(4096);
  const bool was_sent = client.send_with("RUDA", 4, {memfd.get()});
  constexpr int kPassRights = 83;
  const int own = client.fd();
  int passes = 0;
  socklen_t bytes = sizeof(passes);
  if (::getsockopt(own, SOL_SOCKET, kPassRights, &passes, &bytes) != 0) {
    GTEST_SKIP() << "this kernel is older";
  }
  EXPECT_FALSE(was_sent);
  auto attached = attach();
  EXPECT_EQ(add_arena(*attached, 4096), 1u);
}

}  // namespace
}  // namespace rueda::session
