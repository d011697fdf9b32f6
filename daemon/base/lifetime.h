// The life of an object, for callbacks that may come after its end.
#pragma once

#include <memory>
#include <utility>

namespace rueda {

// A callback that is guarded by a Lifetime does nothing once the Lifetime has ended. Callbacks and
// the end belong to one thread. An owner declares its Lifetime last, so that it ends first.
class Lifetime {
 public:
  Lifetime() = default;
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
  ~Lifetime() { end(); }

  // A watch tells code that has called out whether its own object is still there.
  class Watch {
   public:
    bool lasts() const { return *is_alive_; }

   private:
    friend class Lifetime;
    explicit Watch(std::shared_ptr<const bool> is_alive) : is_alive_(std::move(is_alive)) {}

    std::shared_ptr<const bool> is_alive_;
  };

  Watch watch() const { return Watch(is_alive_); }

  // Ends the life before the object itself ends.
  void end() { *is_alive_ = false; }

  // Returns a callback that calls `function` with its arguments while the life lasts.
  template <class Function>
  auto guard(Function function) const {
    return [is_alive = is_alive_,
            function = std::move(function)]<class... Arguments>(Arguments&&... arguments) mutable {
      if (*is_alive) function(std::forward<Arguments>(arguments)...);
    };
  }

 private:
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace rueda
