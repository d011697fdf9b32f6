// Tests what a client may say of device memory, and when it is answered.
#include <algorithm>

#include <gmock/gmock.h>

#include "daemon/base/limits.h"
#include "daemon/session/memory/device_table.h"
#include "tests/session/raw_client.h"

namespace rueda::session {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kCapacity = 512;
constexpr size_t kCounterBytes = 2 * 8 * kCapacity;

rueda_abi_device_memory memory_of(uint32_t kind, uint64_t bytes) {
  rueda_abi_device_memory memory{};
  memory.kind = kind;
  memory.bytes = bytes;
  memory.device[0] = 7;
  memory.ipc[63] = static_cast<uint8_t>(kind == RUEDA_ABI_DEVICE_IPC ? 9 : 0);
  return memory;
}

rueda_abi_intern on_device(const std::string& name, std::vector<int64_t> dims) {
  rueda_abi_intern tensor = make_tensor(name, std::move(dims));
  tensor.memory = 1;
  return tensor;
}

class DeviceMemoryTest : public SessionTest {
 protected:
  void start() {
    start_server(kCapacity);
    client_ = attach(1);
  }
  void ask(const rueda_abi_device_memory& memory, std::vector<int> descriptors = {}) {
    const size_t before = events_.memories.size();
    client_->send(RUEDA_ABI_DEVICE_ADD, &memory, sizeof(memory), descriptors);
    pump_until([&] { return events_.memories.size() > before; }, "device memory");
  }
  void answer(const Status& status = Status::ok()) {
    events_.sessions[0]->device_memory_added(events_.memories.back().id, status);
  }
  uint32_t receive_id() {
    const RawMessage reply = receive(*client_);
    EXPECT_EQ(reply.header.type, RUEDA_ABI_REPLY);
    rueda_abi_status status{};
    std::memcpy(&status, reply.body.data(), sizeof(status));
    EXPECT_EQ(status.code, 0) << status.text;
    return status.value;
  }
  uint32_t share(const rueda_abi_device_memory& memory, std::vector<int> descriptors = {}) {
    ask(memory, std::move(descriptors));
    answer();
    return receive_id();
  }
  void share_counters() {
    const UniqueFd memfd = make_memfd(kCounterBytes);
    share(memory_of(RUEDA_ABI_DEVICE_COUNTERS, kCounterBytes), {memfd.get()});
  }
  std::string refusal(const rueda_abi_device_memory& memory, std::vector<int> descriptors = {}) {
    const rueda_abi_status status =
        request(*client_, RUEDA_ABI_DEVICE_ADD, &memory, sizeof(memory), std::move(descriptors));
    EXPECT_NE(status.code, 0);
    return status.text;
  }
  rueda_abi_status remove(uint32_t id) {
    const rueda_abi_device_remove body{.memory_id = id, .reserved = 0};
    return request(*client_, RUEDA_ABI_DEVICE_REMOVE, &body, sizeof(body));
  }

  std::unique_ptr<RawClient> client_;
};

TEST_F(DeviceMemoryTest, ReachesTheEngineAsItIs) {
  start();
  share_counters();
  EXPECT_EQ(events_.memories[0].kind, RUEDA_ABI_DEVICE_COUNTERS);
  EXPECT_EQ(events_.memories[0].bytes, kCounterBytes);
  EXPECT_TRUE(events_.memories[0].fd.is_open());
  const uint32_t id = share(memory_of(RUEDA_ABI_DEVICE_IPC, 4096));
  const DeviceMemory& memory = events_.memories[1];
  EXPECT_EQ(memory.id, id);
  EXPECT_EQ(memory.device[0], 7);
  EXPECT_EQ(memory.ipc[63], std::byte{9});
  EXPECT_FALSE(memory.fd.is_open());
  const UniqueFd file = make_memfd(4096);
  share(memory_of(RUEDA_ABI_DEVICE_FD, 12345), {file.get()});
  EXPECT_TRUE(events_.memories[2].fd.is_open());
}

TEST_F(DeviceMemoryTest, HostMemoryInPlaceOfTheDevicesIsNamedAsThatIs) {
  start();
  share_counters();
  const UniqueFd memfd = make_memfd(1 << 20);
  const uint32_t id = share(memory_of(RUEDA_ABI_DEVICE_STAGING, 1 << 20), {memfd.get()});
  EXPECT_EQ(events_.memories[1].kind, RUEDA_ABI_DEVICE_STAGING);
  EXPECT_TRUE(events_.memories[1].fd.is_open());
  const UniqueFd file = make_memfd(4096);
  const uint32_t other = share(memory_of(RUEDA_ABI_DEVICE_FD, 4096), {file.get()});
  rueda_abi_device_join join{};
  join.count = 2;
  join.memory_ids[0] = other;
  join.memory_ids[1] = id;
  const rueda_abi_status refused = request(*client_, RUEDA_ABI_DEVICE_JOIN, &join, sizeof(join));
  EXPECT_THAT(refused.text, HasSubstr("cannot be joined"));
  EXPECT_EQ(remove(id).code, 0);
}

TEST_F(DeviceMemoryTest, AnswersKeepTheirOrderThoughOneIsAwaited) {
  start();
  const UniqueFd memfd = make_memfd(kCounterBytes);
  ask(memory_of(RUEDA_ABI_DEVICE_COUNTERS, kCounterBytes), {memfd.get()});
  const rueda_abi_intern tensor = make_tensor("t", {4});
  client_->send(RUEDA_ABI_INTERN, &tensor, sizeof(tensor));
  ask(memory_of(RUEDA_ABI_DEVICE_IPC, 4096));
  events_.sessions[0]->device_memory_added(events_.memories[1].id,
                                           {Code::kNotFound, "no such memory"});
  events_.sessions[0]->device_memory_added(events_.memories[0].id, Status::ok());
  EXPECT_EQ(receive_id(), events_.memories[0].id);
  EXPECT_EQ(receive_id(), 0u);  // is the tensor's id
  const RawMessage last = receive(*client_);
  rueda_abi_status status{};
  std::memcpy(&status, last.body.data(), sizeof(status));
  EXPECT_EQ(status.code, -static_cast<int>(Code::kNotFound));
  EXPECT_STREQ(status.text, "no such memory");
}

TEST_F(DeviceMemoryTest, WhatCannotBeIsRefusedAndTheSessionGoesOn) {
  start();
  const UniqueFd counters = make_memfd(kCounterBytes);
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_IPC, 4096)),
              HasSubstr("counters are shared once"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_COUNTERS, 4096), {counters.get()}),
              HasSubstr(std::to_string(kCounterBytes)));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_COUNTERS, kCounterBytes)),
              HasSubstr("0 descriptors"));
  const UniqueFd unsealed = make_memfd(kCounterBytes, 0);
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_COUNTERS, kCounterBytes), {unsealed.get()}),
              HasSubstr("not sealed"));
  share_counters();
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_COUNTERS, kCounterBytes), {counters.get()}),
              HasSubstr("counters are shared once"));
  EXPECT_THAT(refusal(memory_of(4, 4096)), HasSubstr("kind 4"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_STAGING, 4096)), HasSubstr("0 descriptors"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_STAGING, kCounterBytes), {unsealed.get()}),
              HasSubstr("not sealed"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_STAGING, 4096), {counters.get()}),
              HasSubstr("4096"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_IPC, 4096), {counters.get()}),
              HasSubstr("1 descriptors"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_FD, 4096)), HasSubstr("0 descriptors"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_IPC, 0)), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal(memory_of(RUEDA_ABI_DEVICE_IPC, UINT64_MAX)), HasSubstr("not possible"));
  rueda_abi_device_memory reserved = memory_of(RUEDA_ABI_DEVICE_IPC, 4096);
  reserved.reserved = 1;
  EXPECT_THAT(refusal(reserved), HasSubstr("reserved"));
  EXPECT_EQ(remove(1).code, -static_cast<int>(Code::kNotFound));  // the counters stay
  EXPECT_TRUE(events_.lost.empty());
}

TEST_F(DeviceMemoryTest, IsBoundedAndRefusedOnesDoNotCount) {
  DeviceTable table(kCapacity);
  std::vector<ForeignFd> descriptors;
  descriptors.emplace_back(make_memfd(kCounterBytes), Principal::user(0));
  table.answer(
      table.add(memory_of(RUEDA_ABI_DEVICE_COUNTERS, kCounterBytes), descriptors).value().id, true);
  descriptors.clear();
  const rueda_abi_device_memory memory = memory_of(RUEDA_ABI_DEVICE_IPC, 4096);
  uint32_t last = 0;
  for (size_t i = 1; i < limits::kMaxDeviceMemoriesPerSession; ++i) {
    last = table.add(memory, descriptors).value().id;
  }
  EXPECT_EQ(table.add(memory, descriptors).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(table.bytes_of(last), 0u);  // has not been answered yet
  table.answer(last, false);
  EXPECT_TRUE(table.add(memory, descriptors).is_ok());
}

TEST_F(DeviceMemoryTest, SubmissionsNameIt) {
  start();
  share_counters();
  const uint32_t id = share(memory_of(RUEDA_ABI_DEVICE_IPC, 8192));
  const uint32_t tensor = intern(*client_, on_device("t", {1024}));
  rueda_abi_submission record{};
  record.ticket = 7;
  record.tensor_id = tensor;
  record.input_arena = record.output_arena = id;
  record.output_offset = 4096;
  client_->push(record);
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  const Submission& got = events_.submissions[0];
  EXPECT_EQ(got.descriptor->memory, MemorySpace::kDevice);
  EXPECT_EQ(got.input.device_memory, id);
  EXPECT_EQ(got.output.device_offset, 4096u);
  EXPECT_EQ(got.input.data, nullptr);
  const rueda_abi_status used = remove(id);
  EXPECT_EQ(used.code, -static_cast<int>(Code::kUnavailable));
  events_.sessions[0]->complete(Ticket(7), Status::ok(), Epoch(1), 1, Seq(1));
  EXPECT_EQ(remove(id).code, 0);
  EXPECT_EQ(events_.removed, std::vector<uint32_t>{id});
  // Earlier knowledge about the place of the ticket is forgotten.
  record.ticket = 7 + kCapacity;
  client_->push(record);
  pump_until_lost("does not exist");
}

class DeviceJoinTest : public DeviceMemoryTest {
 protected:
  uint32_t share_piece(uint64_t bytes, uint8_t gpu = 7) {
    const UniqueFd file = make_memfd(4096);
    rueda_abi_device_memory memory = memory_of(RUEDA_ABI_DEVICE_FD, bytes);
    memory.device[0] = gpu;
    return share(memory, {file.get()});
  }
  static rueda_abi_device_join join_of(const std::vector<uint32_t>& pieces) {
    rueda_abi_device_join join{};
    join.count = static_cast<uint32_t>(pieces.size());
    std::copy(pieces.begin(), pieces.end(), join.memory_ids);
    return join;
  }
  void ask_to_join(const std::vector<uint32_t>& pieces) {
    const size_t before = events_.memories.size();
    const rueda_abi_device_join join = join_of(pieces);
    client_->send(RUEDA_ABI_DEVICE_JOIN, &join, sizeof(join));
    pump_until([&] { return events_.memories.size() > before; }, "a join");
  }
  uint32_t join(const std::vector<uint32_t>& pieces) {
    ask_to_join(pieces);
    answer();
    return receive_id();
  }
  std::string refused(const rueda_abi_device_join& join) {
    const rueda_abi_status status = request(*client_, RUEDA_ABI_DEVICE_JOIN, &join, sizeof(join));
    EXPECT_EQ(status.code, -static_cast<int>(Code::kInvalidArgument));
    return status.text;
  }
};

TEST_F(DeviceJoinTest, ReachesTheEngineAndIsAsLongAsItsPieces) {
  start();
  share_counters();
  const uint32_t one = share_piece(4096);
  const uint32_t two = share_piece(8192);
  const uint32_t joined = join({two, one});
  EXPECT_EQ(events_.memories.back().pieces, (std::vector{two, one}));
  EXPECT_EQ(events_.memories.back().bytes, 12288u);
  rueda_abi_submission record{};
  record.ticket = 7;
  record.tensor_id = intern(*client_, on_device("t", {3072}));
  record.input_arena = record.output_arena = joined;
  client_->push(record);
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  EXPECT_EQ(events_.submissions[0].input.device_memory, joined);
  record.ticket = 8;
  record.input_offset = record.output_offset = 4;
  client_->push(record);
  pump_until_lost("outside its device memory");
}

TEST_F(DeviceJoinTest, GoesBeforeItsPieces) {
  start();
  share_counters();
  const uint32_t one = share_piece(4096);
  const uint32_t two = share_piece(4096);
  const uint32_t three = share_piece(4096);
  const uint32_t first = join({one, two});
  const uint32_t second = join({two, three});
  rueda_abi_submission record{};
  record.ticket = 7;
  record.tensor_id = intern(*client_, on_device("t", {2048}));
  record.input_arena = record.output_arena = first;
  client_->push(record);
  pump_until([&] { return events_.submissions.size() == 1; }, "the submission");
  EXPECT_THAT(remove(first).text, HasSubstr("in use by a submission"));
  EXPECT_THAT(remove(one).text, HasSubstr("part of a join"));
  EXPECT_EQ(remove(two).code, -static_cast<int>(Code::kUnavailable));
  events_.sessions[0]->complete(Ticket(7), Status::ok(), Epoch(1), 1, Seq(1));
  EXPECT_EQ(remove(first).code, 0);
  EXPECT_EQ(remove(one).code, 0);
  EXPECT_EQ(remove(two).code, -static_cast<int>(Code::kUnavailable));
  EXPECT_EQ(remove(second).code, 0);
  EXPECT_EQ(remove(two).code, 0);
  EXPECT_EQ(remove(first).code, -static_cast<int>(Code::kNotFound));
  EXPECT_EQ(events_.removed, (std::vector{first, one, second, two}));
}

TEST_F(DeviceJoinTest, OneThatTheWorkerCannotMakeHoldsNothing) {
  start();
  share_counters();
  const uint32_t one = share_piece(4096);
  const uint32_t two = share_piece(4096);
  ask_to_join({one, two});
  EXPECT_EQ(events_.memories.back().pieces.size(), 2u);
  answer({Code::kResourceExhausted, "no addresses"});
  const RawMessage reply = receive(*client_);
  rueda_abi_status status{};
  std::memcpy(&status, reply.body.data(), sizeof(status));
  EXPECT_STREQ(status.text, "no addresses");
  EXPECT_EQ(remove(one).code, 0);
}

TEST_F(DeviceJoinTest, WhatCannotBeJoinedIsRefused) {
  start();
  share_counters();
  const uint32_t one = share_piece(4096);
  const uint32_t two = share_piece(uint64_t{1} << 44);
  const uint32_t by_handle = share(memory_of(RUEDA_ABI_DEVICE_IPC, 4096));
  const uint32_t elsewhere = share_piece(4096, 8);
  const uint32_t three = share_piece(4096);
  const uint32_t joined = join({one, three});
  EXPECT_THAT(refused(join_of({})), HasSubstr("a join of 0"));
  EXPECT_THAT(refused(join_of({one})), HasSubstr("a join of 1"));
  rueda_abi_device_join many = join_of({one, three});
  many.count = RUEDA_ABI_MAX_JOINED + 1;
  EXPECT_THAT(refused(many), HasSubstr("2 to 1022"));
  rueda_abi_device_join reserved = join_of({one, three});
  reserved.reserved = 1;
  EXPECT_THAT(refused(reserved), HasSubstr("reserved"));
  EXPECT_THAT(refused(join_of({one, 77})), HasSubstr("memory 77 cannot be joined"));
  EXPECT_THAT(refused(join_of({one, one})), HasSubstr("named once"));
  EXPECT_THAT(refused(join_of({one, 1})), HasSubstr("memory 1 cannot")) << "the counters";
  EXPECT_THAT(refused(join_of({by_handle, one})), HasSubstr("by a descriptor"));
  EXPECT_THAT(refused(join_of({one, joined})), HasSubstr("by a descriptor"));
  EXPECT_THAT(refused(join_of({one, elsewhere})), HasSubstr("two GPUs"));
  EXPECT_THAT(refused(join_of({one, two})), HasSubstr("is not possible"));
  EXPECT_TRUE(events_.lost.empty());
}

TEST_F(DeviceMemoryTest, SubmissionsThatReachBeyondEndTheSession) {
  const auto record_with = [](uint64_t in, uint64_t out) {
    rueda_abi_submission record{};
    record.ticket = 1;
    record.input_arena = record.output_arena = 2;
    record.input_offset = in;
    record.output_offset = out;
    return record;
  };
  for (const auto& [in, out, text] :
       {std::tuple{uint64_t{8192}, uint64_t{0}, "outside its device memory"},
        std::tuple{UINT64_MAX - 3, uint64_t{0}, "outside its device memory"},
        std::tuple{uint64_t{2}, uint64_t{4096}, "multiple of its element's size"},
        std::tuple{uint64_t{0}, uint64_t{4}, "overlap in device memory"}}) {
    events_ = {};
    start();
    share_counters();
    ASSERT_EQ(share(memory_of(RUEDA_ABI_DEVICE_IPC, 8192)), 2u);
    rueda_abi_submission record = record_with(in, out);
    record.tensor_id = intern(*client_, on_device("t", {1024}));
    client_->push(record);
    pump_until_lost(text);
    client_.reset();
    server_->stop();
    server_.reset();
  }
}

TEST_F(DeviceMemoryTest, OnlyAllreducesAndBroadcastsAreDoneThere) {
  start();
  rueda_abi_intern tensor = on_device("t", {4});
  const auto refused = [&] {
    return std::string(request(*client_, RUEDA_ABI_INTERN, &tensor, sizeof(tensor)).text);
  };
  tensor.op = 5;
  EXPECT_THAT(refused(), HasSubstr("adasum"));
  tensor.op = 0;
  tensor.kind = 7;
  tensor.places = 2;
  EXPECT_THAT(refused(), HasSubstr("allgather"));
  tensor = on_device("t", {4});
  tensor.memory = 2;
  EXPECT_THAT(refused(), HasSubstr("known are 0 and 1"));
  tensor = on_device("t", {4});
  tensor.reserved = 1;
  EXPECT_THAT(refused(), HasSubstr("reserved"));
  tensor = on_device("t", {4});
  tensor.kind = 1;
  tensor.root = 0;
  EXPECT_EQ(request(*client_, RUEDA_ABI_INTERN, &tensor, sizeof(tensor)).code, 0);
}

}  // namespace
}  // namespace rueda::session
