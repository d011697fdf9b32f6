// Tests how RDMA devices come to read memory of other devices (dma-bufs), on devices that are none:
// their library's functions are this file's.
#include "daemon/transport/rdma/device.h"

#ifdef RUEDA_HAS_VERBS

#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <boost/asio/ip/address.hpp>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rueda::transport::rdma {
namespace {

using ::testing::HasSubstr;

struct Registered {
  std::string device;
  uint64_t offset = 0;
  size_t bytes = 0;
  uint64_t iova = 0;
  int fd = -1;
};

// The devices of the library, and what was asked of them.
struct FakeCard {
  std::string name;
  int refuses = 0;  // The errno with which it refuses dma-bufs; 0: it takes them.
  ibv_device device{};
  ibv_context context{};
  ibv_pd domain{};
};
std::vector<std::unique_ptr<FakeCard>> g_cards;
std::vector<Registered> g_registered;
std::map<ibv_mr*, std::unique_ptr<ibv_mr>> g_regions;
uint32_t g_last_key = 0;

FakeCard& card_of(const ibv_context* context) {
  for (const auto& card : g_cards) {
    if (&card->context == context) return *card;
  }
  std::abort();
}

ibv_mr* make_region() {
  auto region = std::make_unique<ibv_mr>();
  region->lkey = ++g_last_key;
  ibv_mr* const made = region.get();
  g_regions.emplace(made, std::move(region));
  return made;
}

const char* name_of(ibv_device* device) {
  for (const auto& card : g_cards) {
    if (&card->device == device) return card->name.c_str();
  }
  return "";
}

ibv_context* open_card(ibv_device* device) {
  for (const auto& card : g_cards) {
    if (&card->device == device) return &card->context;
  }
  return nullptr;
}

// Each card has one active port of Ethernet, with the address 10.0.0.N of the N-th card.
int query_gid(ibv_context* context, uint32_t, uint32_t index, ibv_gid_entry* entry, uint32_t,
              size_t) {
  if (index > 0) return EINVAL;
  *entry = {};
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
  entry->gid.raw[12] = 10;
  for (size_t i = 0; i < g_cards.size(); ++i) {
    if (&g_cards[i]->context == context) entry->gid.raw[15] = static_cast<uint8_t>(i + 1);
  }
  return 0;
}

Verbs fake_verbs() {
  Verbs verbs;
  verbs.get_device_list = [](int* count) {
    auto** const list = new ibv_device* [g_cards.size() + 1] {};
    for (size_t i = 0; i < g_cards.size(); ++i) list[i] = &g_cards[i]->device;
    *count = static_cast<int>(g_cards.size());
    return list;
  };
  verbs.free_device_list = [](ibv_device** list) { delete[] list; };
  verbs.get_device_name = name_of;
  verbs.open_device = open_card;
  verbs.close_device = [](ibv_context*) { return 0; };
  verbs.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    attributes->phys_port_cnt = 1;
    return 0;
  };
  verbs.query_port_of_old = [](ibv_context*, uint8_t, _compat_ibv_port_attr* attributes) {
    auto* const port = reinterpret_cast<ibv_port_attr*>(attributes);
    port->state = IBV_PORT_ACTIVE;
    port->link_layer = IBV_LINK_LAYER_ETHERNET;
    port->gid_tbl_len = 1;
    return 0;
  };
  verbs.query_gid_entry = query_gid;
  verbs.alloc_pd = [](ibv_context* context) {
    ibv_pd* const domain = &card_of(context).domain;
    domain->context = context;
    return domain;
  };
  verbs.dealloc_pd = [](ibv_pd*) { return 0; };
  verbs.create_comp_channel = [](ibv_context*) {
    auto* const channel = new ibv_comp_channel{};
    channel->fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return channel;
  };
  verbs.destroy_comp_channel = [](ibv_comp_channel* channel) {
    ::close(channel->fd);
    delete channel;
    return 0;
  };
  verbs.reg_mr = [](ibv_pd*, void*, size_t, int) { return make_region(); };
  verbs.reg_dmabuf_mr = [](ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                           int) -> ibv_mr* {
    const FakeCard& card = card_of(domain->context);
    if (card.refuses != 0) {
      errno = card.refuses;
      return nullptr;
    }
    g_registered.push_back({card.name, offset, bytes, iova, fd});
    return make_region();
  };
  verbs.dereg_mr = [](ibv_mr* region) {
    g_regions.erase(region);
    return 0;
  };
  return verbs;
}

class RdmaDeviceMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    g_cards.clear();
    g_registered.clear();
  }
  void TearDown() override { EXPECT_TRUE(g_regions.empty()) << "a region is still registered"; }

  static void add_card(const std::string& name, int refuses = 0) {
    g_cards.push_back(std::make_unique<FakeCard>());
    g_cards.back()->name = name;
    g_cards.back()->refuses = refuses;
  }
  Result<LocalPort> find(Devices& devices, size_t card) const {
    const std::string address = "10.0.0." + std::to_string(card + 1);
    return devices.find(boost::asio::ip::make_address(address), 0);
  }

  static constexpr RegionKey kKey{7};
  boost::asio::io_context io_{1};
  Verbs verbs_ = fake_verbs();
  UniqueFd memory_{::memfd_create("a GPU's memory", MFD_CLOEXEC)};
  // The host has nothing there.
  const std::byte* const base_ = reinterpret_cast<const std::byte*>(uint64_t{1} << 40);
};

TEST_F(RdmaDeviceMemory, ADeviceReadsItAtTheAddressThatStandsForIt) {
  add_card("card0");
  const auto device =
      Device::open(io_, verbs_, &g_cards[0]->device, std::chrono::microseconds{0}).value();
  EXPECT_FALSE(device->has_region(kKey));
  ASSERT_TRUE(device->add_device_memory(kKey, {memory_.get(), 8192, 65'536}, base_).is_ok());
  ASSERT_EQ(g_registered.size(), 1u);
  EXPECT_EQ(g_registered[0].offset, 8192u);
  EXPECT_EQ(g_registered[0].bytes, 65'536u);
  EXPECT_EQ(g_registered[0].iova, uint64_t{1} << 40);
  EXPECT_EQ(g_registered[0].fd, memory_.get());
  EXPECT_TRUE(device->has_region(kKey));
  EXPECT_EQ(device->local_key(kKey), g_last_key);
  device->remove_region(kKey);
  EXPECT_FALSE(device->has_region(kKey));
  EXPECT_TRUE(g_regions.empty());
}

TEST_F(RdmaDeviceMemory, WhoeverCannotSaysWhy) {
  add_card("card0", EOPNOTSUPP);
  auto device =
      Device::open(io_, verbs_, &g_cards[0]->device, std::chrono::microseconds{0}).value();
  const Status refused = device->add_device_memory(kKey, {memory_.get(), 0, 4096}, base_);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("the RDMA device card0 cannot read a dma-buf"));
  EXPECT_FALSE(device->has_region(kKey));
  device.reset();

  verbs_.reg_dmabuf_mr = nullptr;
  device = Device::open(io_, verbs_, &g_cards[0]->device, std::chrono::microseconds{0}).value();
  EXPECT_THAT(device->add_device_memory(kKey, {memory_.get(), 0, 4096}, base_).message(),
              HasSubstr("older than rdma-core 34"));
}

TEST_F(RdmaDeviceMemory, DevicesThatAreFoundLaterHaveItToo) {
  add_card("card0");
  add_card("card1", ENOMEM);
  add_card("card2");
  Devices devices(io_, verbs_, {});
  ASSERT_TRUE(devices.add_device_memory(kKey, {memory_.get(), 0, 4096}, base_).is_ok());
  EXPECT_TRUE(g_registered.empty()) << "no device is in use";
  memory_ = UniqueFd();  // It belongs to the caller.
  EXPECT_TRUE(find(devices, 0).value().device->has_region(kKey));
  EXPECT_NE(g_registered.at(0).fd, -1);
  EXPECT_NE(::fcntl(g_registered[0].fd, F_GETFD), -1) << "the descriptor was not kept";
  EXPECT_FALSE(find(devices, 1).value().device->has_region(kKey)) << "it is left out";
  EXPECT_TRUE(find(devices, 2).value().device->has_region(kKey));
  devices.remove_region(kKey);
  EXPECT_FALSE(find(devices, 0).value().device->has_region(kKey));
  EXPECT_TRUE(g_regions.empty());
}

TEST_F(RdmaDeviceMemory, IfNoDeviceInUseCanTheReasonIsTold) {
  add_card("card0", EOPNOTSUPP);
  add_card("card1");
  Devices devices(io_, verbs_, {});
  ASSERT_TRUE(find(devices, 0).is_ok());
  EXPECT_THAT(devices.add_device_memory(kKey, {memory_.get(), 0, 4096}, base_).message(),
              HasSubstr("card0 cannot read a dma-buf"));
  const Result<LocalPort> second = find(devices, 1);
  ASSERT_TRUE(second.is_ok());
  EXPECT_FALSE(second.value().device->has_region(kKey)) << "it was refused, and is not kept";
  ASSERT_TRUE(devices.add_device_memory(kKey, {memory_.get(), 0, 4096}, base_).is_ok());
  EXPECT_TRUE(second.value().device->has_region(kKey));
}

}  // namespace
}  // namespace rueda::transport::rdma

#endif
