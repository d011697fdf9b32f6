// What a loop has to look at because no descriptor tells of it: memory that other processes write.
#pragma once

namespace rueda {

// Every method is called on the loop that it belongs to.
class PollSource {
 public:
  virtual ~PollSource() = default;
  // From now on look() is called all the time: nobody needs to be woken.
  virtual void watch() = 0;
  // Handles what there is. False: there was nothing.
  virtual bool look() = 0;
  // look() is called no more. What has come until then is handled before it returns, and who comes
  // later knows that a descriptor is to be rung.
  virtual void rest() = 0;
};

}  // namespace rueda
