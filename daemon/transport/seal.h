// Seals what goes over a connection between two daemons, so that who reads packets on the way
// learns nothing of it, and who changes, repeats, drops or reorders them is noticed.
//
// A connection carries blocks: bytes whose length both ends know before they come, and a tag behind
// them. Each of its two directions has a key of its own, and its blocks are counted, which is what
// their order hangs on: a block opens at its place and nowhere else. The cipher is AES-128-GCM
// (NIST SP 800-38D); after kBlocksPerKey blocks both ends go on to the next key, which the last one
// gives but does not follow from (as in RFC 8446, section 7.2, without a message for it).
//
// A Sealer or an Opener belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "daemon/transport/frame.h"

struct evp_cipher_ctx_st;

namespace rueda::transport {

// How daemons protect what they send each other on the data plane. Both ends are configured alike;
// it is compared, never negotiated, so nobody on the way can talk them out of it.
enum class Protection : uint8_t {
  kNone = 0,          // Frames go as they are.
  kAuthenticate = 1,  // Blocks have a tag, and are in clear.
  kEncrypt = 2,       // Blocks are encrypted, and have a tag.
};
// Returns "none", "authenticate" or "encrypt".
const char* to_string(Protection protection);
std::optional<Protection> parse_protection(std::string_view text);

inline constexpr size_t kTagBytes = 16;
// Two blocks of a frame of 4 MiB at most: a key protects 2^41 bytes, far from where GCM weakens.
inline constexpr uint64_t kBlocksPerKey = uint64_t{1} << 20;

using Secret = std::array<std::byte, 32>;

// The keys of one connection.
struct ChannelKeys {
  Protection protection = Protection::kNone;
  Secret to_reader{};  // For frames.
  Secret to_writer{};  // For credits.
  // Counts blocks that did not open; null: nobody wants to know. It belongs to the loop.
  std::shared_ptr<uint64_t> forged;

  bool is_on() const { return protection != Protection::kNone; }
};

// Derives a connection's keys from the token of the channel's epoch: by HKDF-SHA256 (RFC 5869) with
// `salt`, which both ends have had a part in, so that no two connections have the same keys.
ChannelKeys derive_keys(Protection protection, const JobToken& token,
                        std::span<const std::byte> salt, const ChannelId& id);

// What both directions' ends have in common.
class BlockCipher {
 public:
  BlockCipher(const BlockCipher&) = delete;
  BlockCipher& operator=(const BlockCipher&) = delete;

 protected:
  BlockCipher(bool seals, Protection protection, const Secret& secret);
  ~BlockCipher() = default;

  // Begins the next block.
  void begin();
  // Goes on with a block: from `from` to `to`, which may be the same.
  void pass(const std::byte* from, std::byte* to, size_t bytes);
  evp_cipher_ctx_st* context() const { return context_.get(); }

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };

  void set_key();

  const bool seals_;
  const bool encrypts_;
  Secret secret_;
  std::array<std::byte, 12> nonce_;  // Of the key; the block's number is added to its end.
  uint64_t blocks_ = 0;              // That have had this key.
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

class Sealer : private BlockCipher {
 public:
  // The protection is not kNone.
  Sealer(Protection protection, const Secret& secret) : BlockCipher(true, protection, secret) {}

  // Writes the parts, one after the other, as one sealed block to `to`, and its tag behind it.
  void seal(std::span<const std::span<const std::byte>> parts, std::byte* to);
  void seal(std::span<const std::byte> block, std::byte* to) { seal({&block, 1}, to); }
};

class Opener : private BlockCipher {
 public:
  Opener(Protection protection, const Secret& secret) : BlockCipher(false, protection, secret) {}

  // Opens the next block in place. Returns false if it is not what the other end has sealed at this
  // place; what the block holds is undefined then, and nothing that comes after it opens.
  [[nodiscard]] bool open(std::span<std::byte> block, std::span<const std::byte, kTagBytes> tag);
};

}  // namespace rueda::transport
