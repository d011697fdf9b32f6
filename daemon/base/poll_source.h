// Something that a loop has to look at because no descriptor tells of it: memory that other
// processes write.
#pragma once

namespace rueda {

// Every method is called on the loop that it belongs to.
class PollSource {
 public:
  virtual ~PollSource() = default;
  // From now on look() is called all the time, so nobody needs to ring a descriptor.
  virtual void watch() = 0;
  // Handles what there is. Returns false if there was nothing.
  virtual bool look() = 0;
  // look() is called no more. Whatever has come until then is handled before this returns, and
  // whoever comes later knows that a descriptor has to be rung.
  virtual void rest() = 0;
};

}  // namespace rueda
